// Command cron is a job that runs on one of many machines: a lease, which survives the process, and is not free again within 10 seconds.
//
//	cron SERVERS
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
	lease, err := client.AcquireLease(ctx, "examples/nightly-report", 10*time.Minute, lockgate.WithWait(0),
		lockgate.WithMinHold(10*time.Second), lockgate.WithNote("nightly report"))
	if errors.Is(err, lockgate.ErrLocked) {
		fmt.Println("another machine runs it")
		return nil
	}
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	fmt.Println("running with fencing token", lease.Token)
	return nil
}
