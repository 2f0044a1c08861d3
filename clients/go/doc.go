// Package lockgate is a client of the lock server Lockgate: locks with a fencing token, whose loss is reported before another session can be
// granted them. Its names are those of etcd's package concurrency.
//
//	client, err := lockgate.New(lockgate.Config{Endpoints: []string{"127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"}})
//	defer client.Close()
//	session, err := lockgate.NewSession(client)
//	mutex := lockgate.NewMutex(session, "orders/42")
//	err = mutex.Do(ctx, func(ctx context.Context) error {
//		return ship(ctx, mutex.Token()) // ctx is cancelled when the lock is lost
//	})
//
// A Client sends requests to one server after the other until their outcome is known. A Session is kept alive in the background and holds
// the locks: Mutex, RWMutex, Semaphore, MultiMutex, and Election. A Lease is a lock without a session.
//
// # Loss of a lock
//
// The Context of a lock is cancelled when the lock is lost, and Cause returns the *Lost with the reason. Check reads the clock and sends
// nothing, so it can be called before every step. Its deadline counts from when the last confirmed heartbeat was sent, less 1 % and 100 ms,
// so it passes before the cluster grants the lock to another session.
//
// # Errors
//
// A *Refused was decided by the cluster, which changed nothing. It matches ErrLocked if the lock was not free. ErrUnavailable: nothing was
// done, and the call may be repeated. ErrOutcomeUnknown: it may have been done, so check before repeating it. *Lost, which matches ErrLost:
// the lock or its session is lost.
//
// # Waiting
//
// Lock waits until its context ends, or for the time of WithWait. A call that gives up leaves the queue, and releases a grant of the same
// moment.
package lockgate
