// Command election leads for a moment, and hands over to a named candidate if that one waits.
//
//	election SERVERS CANDIDATE [SUCCESSOR]
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
	session, err := lockgate.NewSession(client, lockgate.WithName("election example"))
	if err != nil {
		return err
	}
	candidate := os.Args[2]
	election := lockgate.NewElection(session, "examples/scheduler")
	if err := election.Campaign(ctx, candidate); err != nil {
		return err
	}
	defer election.Resign(ctx)
	fmt.Println(candidate, "leads in term", election.Token())
	for i := 0; i < 3; i++ {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-election.Context().Done():
			return lockgate.Cause(election.Context())
		}
	}
	if len(os.Args) > 3 {
		err := election.HandOver(ctx, os.Args[3])
		if !errors.Is(err, lockgate.ErrNoCandidate) {
			return err
		}
		fmt.Println(err)
	}
	return nil
}
