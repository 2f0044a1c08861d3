// Command guardedwrite writes a znode only while it holds a lock: the cluster checks the lock in the same transaction.
//
//	guardedwrite SERVERS
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
	session, err := lockgate.NewSession(client, lockgate.WithName("guarded write example"))
	if err != nil {
		return err
	}
	const path = "/examples/orders/42"
	if _, err := client.Create(ctx, path, []byte("open"), lockgate.Parents()); err != nil && lockgate.Code(err) != "node_exists" {
		return err
	}
	mutex := lockgate.NewMutex(session, "examples/orders/42", lockgate.WithWait(10*time.Second))
	err = mutex.Do(ctx, func(ctx context.Context) error {
		if _, err := client.Txn(ctx, []lockgate.Op{lockgate.OpSet(path, []byte("paid"), lockgate.AnyVersion)}, mutex); err != nil {
			return err
		}
		// After a break the same write is refused, however late this process learns of it.
		if err := client.Break(ctx, "examples/orders/42", "example"); err != nil {
			return err
		}
		_, err := client.Txn(context.Background(), []lockgate.Op{lockgate.OpSet(path, []byte("twice"), lockgate.AnyVersion)}, mutex)
		return err
	})
	if !errors.Is(err, lockgate.ErrLost) {
		return err
	}
	found, failed := client.Get(ctx, path)
	fmt.Printf("%s, and not written twice: %v\n", found.Data, err)
	return failed
}
