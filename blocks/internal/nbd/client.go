package nbd

import (
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Limits of one client. Each VMM has a user id of its own, and one that its guest took over must not slow down the others:
// it may open many connections, ask for much, and never read an answer.
const (
	maxClientConnections = 32
	maxClientRequests    = 64
	clientBytes          = 16 << 20
)

// client is all connections of one user.
type client struct {
	connections int
	slots       chan struct{}
	memory      *budget
}

type clients struct {
	mutex  sync.Mutex
	byUser map[uint32]*client
}

// enter returns nil if the user has too many connections.
func (c *clients) enter(user uint32) *client {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	found := c.byUser[user]
	if found == nil {
		found = &client{slots: make(chan struct{}, maxClientRequests), memory: newBudget(clientBytes)}
		c.byUser[user] = found
	}
	if found.connections >= maxClientConnections {
		return nil
	}
	found.connections++
	return found
}

func (c *clients) leave(user uint32) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	found := c.byUser[user]
	if found.connections--; found.connections == 0 {
		delete(c.byUser, user)
	}
}

// userOf is the user id of the process that connected.
func userOf(accepted net.Conn) (user uint32) {
	socket, ok := accepted.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(descriptor uintptr) {
		if credentials, err := unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			user = credentials.Uid
		}
	})
	return user
}
