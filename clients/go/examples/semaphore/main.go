// Command semaphore prints beside at most two others.
//
//	semaphore SERVERS
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
	session, err := lockgate.NewSession(client, lockgate.WithName("semaphore example"))
	if err != nil {
		return err
	}
	printers := lockgate.NewSemaphore(session, "examples/printers", 3, 1)
	return printers.Do(ctx, func(context.Context) error {
		fmt.Println("printing, at most three at a time")
		time.Sleep(200 * time.Millisecond)
		return nil
	})
}
