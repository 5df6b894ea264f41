package nbd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"coppice/blocks/internal/blockmap"
)

type connection struct {
	server  *Server
	client  *client
	context context.Context
	socket  net.Conn
	in      *bufio.Reader
	group   sync.WaitGroup

	export        Export
	exportName    string
	isZeroless    bool
	isStructured  bool
	hasAllocation bool

	writing sync.Mutex

	// Where a sequential reader would continue, and up to where was read ahead. Only transmit uses them.
	next, ahead int64
	sequential  int
}

type request struct {
	flags, command uint16
	cookie         uint64
	offset         int64
	length         int64
}

// transmit answers requests until the client leaves.
func (c *connection) transmit() error {
	for {
		raw, err := c.read(28)
		if err != nil {
			return err
		}
		if be.Uint32(raw) != magicRequest {
			return fmt.Errorf("the client sent %#x for a request", be.Uint32(raw))
		}
		r := request{flags: be.Uint16(raw[4:]), command: be.Uint16(raw[6:]), cookie: be.Uint64(raw[8:]),
			offset: int64(be.Uint64(raw[16:])), length: int64(be.Uint32(raw[24:]))}
		if r.command == cmdDisc {
			return errGone
		}
		if r.command == cmdWrite {
			// The content follows, which a correct client does not send to a read-only export.
			return fmt.Errorf("the client writes to a read-only export")
		}
		select {
		case c.client.slots <- struct{}{}:
		case <-c.context.Done():
			return c.context.Err()
		}
		if r.command == cmdRead {
			c.readAhead(r)
		}
		c.group.Add(1)
		go func() {
			defer c.group.Done()
			defer func() { <-c.client.slots }()
			if err := c.answer(r); err != nil {
				_ = c.socket.Close()
			}
		}()
	}
}

func (c *connection) answer(r request) error {
	isInside := r.offset >= 0 && r.length <= c.export.Size() && r.offset <= c.export.Size()-r.length
	switch r.command {
	case cmdFlush:
		return c.finish(r, 0)
	case cmdTrim, cmdWriteZeroes:
		return c.finish(r, errPermission)
	case cmdRead, cmdCache, cmdBlockStatus:
	default:
		return c.finish(r, errNotSup)
	}
	if !isInside || r.length == 0 || r.command == cmdRead && r.length > maxRequestBytes {
		return c.finish(r, errInvalid)
	}
	defer c.server.beginRead(c.exportName)()
	ctx, cancel := context.WithTimeout(c.context, c.server.options.ReadTime)
	defer cancel()
	switch r.command {
	case cmdRead:
		return c.answerRead(ctx, r)
	case cmdCache:
		// A hint; the length is the client's, so the work is bounded.
		return c.finish(r, c.errnoOf(r, c.export.Prefetch(ctx, r.offset, min(r.length, readaheadBytes))))
	default:
		return c.answerStatus(ctx, r)
	}
}

func (c *connection) answerRead(ctx context.Context, r request) error {
	for _, budget := range []*budget{c.client.memory, c.server.memory} {
		if err := budget.take(ctx, r.length); err != nil {
			return c.finish(r, errIO)
		}
		defer budget.give(r.length)
	}
	head := 16
	if c.isStructured {
		head = 28
	}
	message := make([]byte, int64(head)+r.length)
	if errno := c.errnoOf(r, c.export.ReadAt(ctx, message[head:], r.offset)); errno != 0 {
		return c.finish(r, errno)
	}
	if !c.isStructured {
		be.PutUint32(message, magicSimple)
		be.PutUint64(message[8:], r.cookie)
		return c.write(message)
	}
	putChunk(message, r, replyOffsetData, uint32(8+r.length))
	be.PutUint64(message[20:], uint64(r.offset))
	return c.write(message)
}

func putChunk(message []byte, r request, kind uint16, length uint32) {
	be.PutUint32(message, magicStructured)
	be.PutUint16(message[4:], replyFlagDone)
	be.PutUint16(message[6:], kind)
	be.PutUint64(message[8:], r.cookie)
	be.PutUint32(message[16:], length)
}

func (c *connection) answerStatus(ctx context.Context, r request) error {
	if !c.hasAllocation {
		return c.finish(r, errInvalid)
	}
	runs, err := c.export.Runs(ctx, r.offset, r.length)
	if errno := c.errnoOf(r, err); errno != 0 {
		return c.finish(r, errno)
	}
	if r.flags&cmdFlagReqOne != 0 {
		runs = runs[:1]
	}
	message := make([]byte, 24, 24+8*len(runs))
	putChunk(message, r, replyBlockStatus, uint32(4+8*len(runs)))
	be.PutUint32(message[20:], allocationContextID)
	for _, run := range runs {
		message = be.AppendUint32(message, uint32(run.Length))
		message = be.AppendUint32(message, stateOf(run))
	}
	return c.write(message)
}

func stateOf(run blockmap.Run) uint32 {
	if run.HasData {
		return 0
	}
	return stateHole | stateZero
}

// finish answers without content.
func (c *connection) finish(r request, errno uint32) error {
	if !c.isStructured {
		message := be.AppendUint32(nil, magicSimple)
		message = be.AppendUint32(message, errno)
		return c.write(be.AppendUint64(message, r.cookie))
	}
	message := make([]byte, 20)
	if errno == 0 {
		putChunk(message, r, replyNone, 0)
		return c.write(message)
	}
	putChunk(message, r, replyError, 6)
	return c.write(append(be.AppendUint32(message, errno), 0, 0))
}

func (c *connection) errnoOf(r request, err error) uint32 {
	if err == nil {
		return 0
	}
	if c.context.Err() == nil {
		c.server.options.Log.Error("a read of a disk failed", "offset", r.offset, "length", r.length, "error", err)
	}
	return errIO
}

// readAhead fetches what a sequential reader will want, if a few such reads came one after the other.
func (c *connection) readAhead(r request) {
	if r.offset == c.next {
		c.sequential++
	} else {
		c.sequential, c.ahead = 0, 0
	}
	c.next = r.offset + r.length
	from, to := max(c.ahead, c.next), min(c.next+readaheadBytes, c.export.Size())
	if c.sequential < sequentialReads || to-from < readaheadBytes/2 {
		return
	}
	select {
	case c.server.readaheads <- struct{}{}:
	default:
		return
	}
	c.ahead = to
	c.group.Add(1)
	go func() {
		defer c.group.Done()
		defer func() { <-c.server.readaheads }()
		ctx, cancel := context.WithTimeout(c.context, c.server.options.ReadTime)
		defer cancel()
		// A failure shows when the range is read.
		_ = c.export.Prefetch(ctx, from, to-from)
	}()
}

func (c *connection) write(message []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.socket.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := c.socket.Write(message)
	return err
}
