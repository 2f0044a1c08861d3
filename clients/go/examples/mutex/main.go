// Command mutex works under a lock, and stops when the lock is lost.
//
//	mutex SERVERS
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
	session, err := lockgate.NewSession(client, lockgate.WithTTL(10), lockgate.WithName("mutex example"))
	if err != nil {
		return err
	}
	mutex := lockgate.NewMutex(session, "examples/orders/42", lockgate.WithWait(10*time.Second))
	err = mutex.Do(ctx, func(ctx context.Context) error {
		fmt.Println("fencing token", mutex.Token())
		for step := 0; step < 3; step++ {
			// Before each step, because the process may have been stopped for longer than the TTL.
			if err := mutex.Check(); err != nil {
				return err
			}
			fmt.Println("step", step)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if errors.Is(err, lockgate.ErrLocked) {
		fmt.Println("another process has it")
		return nil
	}
	return err
}
