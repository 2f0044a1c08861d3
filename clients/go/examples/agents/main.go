// Command agents is one of several AI agents that share a repository: each takes the files that it is about to edit, all or none, and tells the
// others what it does. An agent that needs a file of another one asks for it, and gets it when that one has finished its edit.
//
//	agents SERVERS AGENT FILE…
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"lockgate"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := lockgate.New(lockgate.Config{Endpoints: strings.Split(os.Args[1], ",")})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := lockgate.NewSession(client, lockgate.WithName("agent"))
	if err != nil {
		return err
	}
	agent, files := os.Args[2], os.Args[3:]
	asked := make(chan lockgate.ReleaseRequest, len(files))
	wants := []lockgate.Want{}
	for _, file := range files {
		want := lockgate.Want{Name: "examples/repository/" + file}
		wants = append(wants, want)
		state, err := client.Inspect(ctx, want.Name)
		if err != nil {
			return err
		}
		if len(state.Holders) > 0 {
			if err := client.RequestRelease(ctx, want.Name, agent+" needs it"); err != nil {
				return err
			}
		}
	}
	locks := lockgate.NewMultiMutex(session, wants, lockgate.WithNote(agent+" edits "+strings.Join(files, ", ")),
		lockgate.OnReleaseRequest(func(request lockgate.ReleaseRequest) { asked <- request }))
	err = locks.Do(ctx, func(ctx context.Context) error {
		for step := 0; step < 5; step++ {
			fmt.Println(agent, "edit", step, "of", files, "under", locks.Tokens())
			select {
			case <-time.After(300 * time.Millisecond):
			case request := <-asked:
				fmt.Printf("%s: somebody waits (%s), so this edit is the last one\n", agent, request.Reason)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if errors.Is(err, lockgate.ErrLost) {
		fmt.Println(agent, "has stopped, the edits since the last commit are dropped:", err)
		return nil
	}
	return err
}
