// Package serve answers requests as lines of JSON: each line in has an id, the name of an operation and its arguments;
// each line out has the same id and a result or an error. A null result means that there is no such object. Lines out
// without an id announce events.
//
//	{"id":1,"op":"flush","mark":7}                              {"id":1,"result":true}
//	{"id":2,"op":"set","table":"t","name":"s"}                  {"id":2,"result":[{"key":"<base64>","packets":3,"remaining_ms":59000}]}
//	{"id":3,"op":"counter","table":"t","name":"c"}              {"id":3,"result":7}
//	{"id":4,"op":"original","local":"a:p","remote":"a:p"}       {"id":4,"result":"203.0.113.1:443"}
//	{"id":5,"op":"tap","name":"cop0p"}                          {"id":5,"error":"…"}
//	{"id":6,"op":"watch","table":"t"}                           {"id":6,"result":true}, then {"event":"removed","table":"t"}
package serve

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mdlayher/netlink"

	"coppice/hostctl/internal/conntrack"
	"coppice/hostctl/internal/rules"
	"coppice/hostctl/internal/tap"
)

const maxLineBytes = 64 << 10

type request struct {
	ID     int64  `json:"id"`
	Op     string `json:"op"`
	Mark   uint32 `json:"mark"`
	Table  string `json:"table"`
	Name   string `json:"name"`
	Local  string `json:"local"`
	Remote string `json:"remote"`
}

type element struct {
	Key     string `json:"key"`
	Packets uint64 `json:"packets"`
	// RemainingMS is absent for an element that does not expire.
	RemainingMS *int64 `json:"remaining_ms,omitempty"`
}

// Server answers the requests of one peer, one after the other.
type Server struct {
	connections *conntrack.Table
	rules       *rules.Reader
	watches     []*netlink.Conn
	operations  []string
	isClosing   atomic.Bool
	mutex       sync.Mutex
	out         *bufio.Writer
}

// Run answers requests from in until it ends. With operations it refuses all others.
func Run(in io.Reader, out io.Writer, operations ...string) error {
	server := &Server{out: bufio.NewWriter(out), operations: operations}
	defer server.close()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, maxLineBytes), maxLineBytes)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return fmt.Errorf("a request is not valid: %w", err)
		}
		result, err := server.answer(asked)
		if err := server.write(asked.ID, result, err); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (s *Server) answer(asked request) (any, error) {
	if len(s.operations) > 0 && !slices.Contains(s.operations, asked.Op) {
		return nil, fmt.Errorf("operation %q is not allowed here", asked.Op)
	}
	switch asked.Op {
	case "flush":
		return s.flush(asked.Mark)
	case "original":
		return s.original(asked.Local, asked.Remote)
	case "set":
		return s.set(asked.Table, asked.Name)
	case "counter":
		return s.counter(asked.Table, asked.Name)
	case "watch":
		return s.watch(asked.Table)
	case "tap":
		return true, tap.Check(asked.Name)
	default:
		return nil, fmt.Errorf("there is no operation %q", asked.Op)
	}
}

func (s *Server) flush(mark uint32) (any, error) {
	table, err := s.openConnections()
	if err != nil {
		return nil, err
	}
	return true, s.keepConnections(table.Flush(mark))
}

func (s *Server) original(local, remote string) (any, error) {
	here, err := netip.ParseAddrPort(local)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	there, err := netip.ParseAddrPort(remote)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	table, err := s.openConnections()
	if err != nil {
		return nil, err
	}
	original, ok, err := table.FindOriginal(here, there)
	if err != nil || !ok {
		return nil, s.keepConnections(err)
	}
	return original.String(), nil
}

func (s *Server) set(table, name string) (any, error) {
	reader, err := s.openRules()
	if err != nil {
		return nil, err
	}
	found, ok, err := reader.ReadSet(table, name)
	if err != nil || !ok {
		return nil, s.keepRules(err)
	}
	elements := make([]element, 0, len(found))
	for _, each := range found {
		shown := element{Key: base64.StdEncoding.EncodeToString(each.Key), Packets: each.Packets}
		if each.Remaining != math.MaxInt64 {
			remaining := each.Remaining.Milliseconds()
			shown.RemainingMS = &remaining
		}
		elements = append(elements, shown)
	}
	return elements, nil
}

func (s *Server) counter(table, name string) (any, error) {
	reader, err := s.openRules()
	if err != nil {
		return nil, err
	}
	packets, ok, err := reader.ReadCounter(table, name)
	if err != nil || !ok {
		return nil, s.keepRules(err)
	}
	return packets, nil
}

// watch announces each removal of the table from now on.
func (s *Server) watch(table string) (any, error) {
	connection, err := rules.OpenWatch()
	if err != nil {
		return nil, err
	}
	s.watches = append(s.watches, connection)
	go func() {
		err := rules.Watch(connection, table, func() { s.announce("removed", table, nil) })
		// Without a watch a removal would go unnoticed: the peer must open another.
		if !s.isClosing.Load() {
			s.announce("unwatched", table, err)
		}
	}()
	return true, nil
}

// keepConnections closes the connection after an error, because a late answer would be taken for that of the next request.
func (s *Server) keepConnections(err error) error {
	if err != nil {
		_ = s.connections.Close()
		s.connections = nil
	}
	return err
}

// keepRules does the same for the reader of rules.
func (s *Server) keepRules(err error) error {
	if err != nil {
		_ = s.rules.Close()
		s.rules = nil
	}
	return err
}

func (s *Server) openConnections() (*conntrack.Table, error) {
	if s.connections != nil {
		return s.connections, nil
	}
	table, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	s.connections = table
	return table, nil
}

func (s *Server) openRules() (*rules.Reader, error) {
	if s.rules != nil {
		return s.rules, nil
	}
	reader, err := rules.Open()
	if err != nil {
		return nil, err
	}
	s.rules = reader
	return reader, nil
}

func (s *Server) announce(event, table string, cause error) {
	line := map[string]any{"event": event, "table": table}
	if cause != nil {
		line["error"] = cause.Error()
	}
	// A peer that is gone needs no events.
	_ = s.writeLine(line)
}

func (s *Server) write(id int64, result any, err error) error {
	if err != nil {
		return s.writeLine(map[string]any{"id": id, "error": err.Error()})
	}
	return s.writeLine(map[string]any{"id": id, "result": result})
}

func (s *Server) writeLine(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	_, err = s.out.Write(append(line, '\n'))
	return errors.Join(err, s.out.Flush())
}

func (s *Server) close() {
	s.isClosing.Store(true)
	for _, watch := range s.watches {
		_ = watch.Close()
	}
	if s.connections != nil {
		_ = s.connections.Close()
	}
	if s.rules != nil {
		_ = s.rules.Close()
	}
}
