// Command transfer takes two accounts at once. Callers that lock the same ones in any order cannot deadlock.
//
//	transfer SERVERS
package main

import (
	"context"
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
	session, err := lockgate.NewSession(client, lockgate.WithName("transfer example"))
	if err != nil {
		return err
	}
	locks := lockgate.NewMultiMutex(session, []lockgate.Want{
		{Name: "examples/accounts/a"},
		{Name: "examples/accounts/b"},
		{Name: "examples/rates", Mode: lockgate.Shared},
	}, lockgate.WithWait(10*time.Second))
	return locks.Do(ctx, func(context.Context) error {
		fmt.Println("transfer under the fencing tokens", locks.Tokens())
		return nil
	})
}
