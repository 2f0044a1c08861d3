package lockgate_test

import (
	"context"
	"errors"
	"fmt"

	"lockgate"
	"lockgate/lockgatetest"
)

// newExample returns a cluster in memory and a session of it.
func newExample() (*lockgatetest.Cluster, *lockgate.Session, func()) {
	cluster := lockgatetest.NewCluster()
	client, err := cluster.Client(lockgate.Config{})
	if err != nil {
		panic(err)
	}
	session, err := lockgate.NewSession(client)
	if err != nil {
		panic(err)
	}
	return cluster, session, func() {
		client.Close()
		cluster.Close()
	}
}

func ExampleMutex_Do() {
	cluster, session, end := newExample()
	defer end()
	mutex := lockgate.NewMutex(session, "orders/42")
	err := mutex.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("held:", mutex.Check() == nil)
		cluster.Break("orders/42", "a test")
		<-ctx.Done()
		return ctx.Err()
	})
	var lost *lockgate.Lost
	if errors.As(err, &lost) {
		fmt.Println(lost.Reason, "because of", lost.Detail)
	}
	// Output:
	// held: true
	// broken because of a test
}

func ExampleMutex_TryLock() {
	_, session, end := newExample()
	defer end()
	ctx := context.Background()
	first, second := lockgate.NewMutex(session, "orders/42"), lockgate.NewMutex(session, "orders/42")
	fmt.Println(first.TryLock(ctx))
	fmt.Println(errors.Is(second.TryLock(ctx), lockgate.ErrLocked))
	fmt.Println(first.Unlock(ctx))
	// Output:
	// <nil>
	// true
	// <nil>
}

func ExampleElection() {
	_, session, end := newExample()
	defer end()
	ctx := context.Background()
	election := lockgate.NewElection(session, "scheduler")
	if err := election.Campaign(ctx, "node-7"); err != nil {
		fmt.Println(err)
	}
	leader, err := election.Leader(ctx)
	fmt.Println(leader.Candidate, err, leader.Term == election.Token())
	fmt.Println(election.Resign(ctx))
	// Output:
	// node-7 <nil> true
	// <nil>
}

func ExampleClient_Txn() {
	_, session, end := newExample()
	defer end()
	ctx, client := context.Background(), session.Client()
	_, _ = client.Create(ctx, "/orders", []byte("open"))
	mutex := lockgate.NewMutex(session, "orders")
	fmt.Println(mutex.Lock(ctx))
	_, err := client.Txn(ctx, []lockgate.Op{lockgate.OpSet("/orders", []byte("paid"), lockgate.AnyVersion)}, mutex)
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
}
