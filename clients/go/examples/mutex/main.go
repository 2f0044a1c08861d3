// Command mutex does some work under a lock, and stops when the lock is lost.
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
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() (err error) {
	client, err := lockgate.New(lockgate.Config{Endpoints: strings.Split(os.Getenv("LOCKGATE_SERVERS"), ",")})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := lockgate.NewSession(client, lockgate.WithTTL(10))
	if err != nil {
		return err
	}
	defer session.Close()
	mutex := lockgate.NewMutex(session, "orders/42")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(time.Second):
		fmt.Println("worked under the fencing token", mutex.Token())
		return mutex.Unlock(ctx)
	case <-mutex.Context().Done():
		return lockgate.Cause(mutex.Context())
	}
}
