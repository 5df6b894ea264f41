package nbd

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"coppice/blocks/internal/blockmap"
)

// Export is one version of a disk.
type Export interface {
	Size() int64
	ReadAt(ctx context.Context, content []byte, offset int64) error
	Runs(ctx context.Context, offset, length int64) ([]blockmap.Run, error)
	Prefetch(ctx context.Context, offset, length int64) error
}

// Exports finds exports by name. A name is a secret that only its users know, so no client may list names.
type Exports interface {
	Find(ctx context.Context, name string) (Export, error)
}

// Options of a server.
type Options struct {
	// ReadTime is how long a read waits for the store.
	ReadTime time.Duration
	// MemoryBytes limits the content of all requests in progress.
	MemoryBytes int64
	Log         *slog.Logger
	// UserOf tells clients apart; nil: by the user id of the process that connected.
	UserOf func(net.Conn) uint32
}

const (
	// handshakeTime ends a client that negotiates forever.
	handshakeTime = 30 * time.Second
	// writeTime ends a client that does not take its answers, and so holds memory.
	writeTime       = 30 * time.Second
	acceptPause     = 50 * time.Millisecond
	readaheadBytes  = 4 << 20
	sequentialReads = 2
	maxReadaheads   = 4
)

// Server serves connections.
type Server struct {
	exports    Exports
	options    Options
	memory     *budget
	readaheads chan struct{}
	clients    clients

	mutex sync.Mutex
	// reads are the requests in progress that may wait for the store.
	reads map[*read]struct{}
}

type read struct {
	export string
	begin  time.Time
}

// Reads counts the requests in progress for exports whose name begins with a prefix, and says when the oldest began.
func (s *Server) Reads(prefix string) (count int, oldest time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for each := range s.reads {
		if !strings.HasPrefix(each.export, prefix) {
			continue
		}
		if count++; count == 1 || each.begin.Before(oldest) {
			oldest = each.begin
		}
	}
	return count, oldest
}

func (s *Server) beginRead(export string) (end func()) {
	begun := &read{export, time.Now()}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.reads[begun] = struct{}{}
	return func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.reads, begun)
	}
}

// NewServer makes a server.
func NewServer(exports Exports, options Options) *Server {
	if options.UserOf == nil {
		options.UserOf = userOf
	}
	return &Server{exports: exports, options: options, memory: newBudget(options.MemoryBytes), readaheads: make(chan struct{}, maxReadaheads),
		clients: clients{byUser: map[uint32]*client{}}, reads: map[*read]struct{}{}}
}

// Serve accepts connections until the listener is closed, or the context ends. It returns when all have ended.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		accepted, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			cancel()
			return nil
		}
		if err != nil {
			// All descriptors are in use, for example. Connections that exist must not end for that.
			s.options.Log.Error("accepting an NBD connection failed", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		group.Add(1)
		go func() {
			defer group.Done()
			s.serveConnection(ctx, accepted)
		}()
	}
}

func (s *Server) serveConnection(ctx context.Context, accepted net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer accepted.Close()
	stop := context.AfterFunc(ctx, func() { _ = accepted.Close() })
	defer stop()
	user := s.options.UserOf(accepted)
	client := s.clients.enter(user)
	if client == nil {
		return
	}
	defer s.clients.leave(user)
	c := &connection{server: s, client: client, context: ctx, socket: accepted, in: bufio.NewReader(accepted)}
	_ = accepted.SetReadDeadline(time.Now().Add(handshakeTime))
	if err := c.handshake(); err != nil {
		s.options.Log.Debug("an NBD client left before it chose an export", "error", err)
		return
	}
	_ = accepted.SetReadDeadline(time.Time{})
	err := c.transmit()
	cancel()
	c.group.Wait()
	if err != nil && !errors.Is(err, errGone) {
		s.options.Log.Debug("an NBD connection ended", "error", err)
	}
}

// budget limits memory. A request waits until there is enough.
type budget struct {
	mutex sync.Mutex
	free  int64
	freed chan struct{}
}

func newBudget(bytes int64) *budget {
	return &budget{free: max(bytes, maxRequestBytes), freed: make(chan struct{})}
}

func (b *budget) take(ctx context.Context, bytes int64) error {
	for {
		b.mutex.Lock()
		if b.free >= bytes {
			b.free -= bytes
			b.mutex.Unlock()
			return nil
		}
		freed := b.freed
		b.mutex.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *budget) give(bytes int64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.free += bytes
	close(b.freed)
	b.freed = make(chan struct{})
}
