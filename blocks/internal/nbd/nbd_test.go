package nbd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/nbd"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
	"coppice/blocks/testing/memory"
)

const size = 80<<20 + 4096

type exports map[string]nbd.Export

func (e exports) Find(_ context.Context, name string) (nbd.Export, error) {
	if found, ok := e[name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("there is no export %q", name)
}

// start serves one version on a socket, and returns its content.
func start(t testing.TB, store *memory.Store, readTime time.Duration) (socket string, content []byte) {
	t.Helper()
	return startFor(t, store, nbd.Options{ReadTime: readTime, MemoryBytes: 64 << 20})
}

func startFor(t testing.TB, store *memory.Store, options nbd.Options) (socket string, content []byte) {
	t.Helper()
	ctx := context.Background()
	content = make([]byte, size)
	random := rand.New(rand.NewPCG(1, 2))
	for offset := 0; offset+300_000 < size; offset += 4096 * (1 + random.IntN(1000)) {
		for i := range 4096 * (1 + random.IntN(40)) {
			content[offset+i] = byte(random.Uint32())
		}
	}
	source := blockmap.NewSource(store, nil)
	empty, _ := blockmap.OpenVersion(ctx, source, "o", segment.Hash{}, size)
	builder := blockmap.NewBuilder(ctx, empty, segment.NewID())
	defer builder.Close()
	err := builder.Apply(ctx, blockmap.Change{Length: size, Read: func(part []byte, at int64) error { copy(part, content[at:]); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	root, _, err := builder.Finish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	version, err := blockmap.OpenVersion(ctx, blockmap.NewSource(store, nil), "o", root, size)
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	options.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	server := nbd.NewServer(exports{"o/d/1": version}, options)
	serving, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(serving, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return socket, content
}

func uri(socket, name string) string { return "nbd+unix:///" + name + "?socket=" + socket }

func run(program string, arguments ...string) (string, error) {
	output, err := exec.Command(program, arguments...).CombinedOutput()
	return string(output), err
}

func TestQemuReadsAnExport(t *testing.T) {
	socket, content := start(t, memory.New(), time.Minute)
	raw := filepath.Join(t.TempDir(), "raw")
	if output, err := run("qemu-img", "convert", "-f", "raw", "-O", "raw", uri(socket, "o/d/1"), raw); err != nil {
		t.Fatal(output)
	}
	if found, err := os.ReadFile(raw); err != nil || !bytes.Equal(found, content) {
		t.Errorf("the content differs: %v", err)
	}
	if output, err := run("qemu-img", "map", "--output=json", "-f", "raw", uri(socket, "o/d/1")); err != nil ||
		!strings.Contains(output, `"zero": true, "data": false`) {
		t.Errorf("the map has no holes: %v %.300s", err, output)
	}
	if output, err := run("qemu-nbd", "--list", "-k", socket); err != nil || !strings.Contains(output, "exports available: 0") {
		t.Errorf("names of exports are listed: %v %s", err, output)
	}
	if output, err := run("qemu-io", "-r", "-f", "raw", "-c", "flush", "-c", "read 1 511", uri(socket, "o/d/1")); err != nil {
		t.Errorf("flush and an odd read: %v %s", err, output)
	}
	for name, arguments := range map[string][]string{
		"an unknown export": {"-r", "-f", "raw", "-c", "read 0 1", uri(socket, "o/d/2")},
		"a write":           {"-f", "raw", "-c", "write 0 512", uri(socket, "o/d/1")},
	} {
		if output, err := run("qemu-io", arguments...); err == nil && !strings.Contains(output, "ailed") {
			t.Errorf("%s: %s", name, output)
		}
	}
}

// newUnreliable returns a store that refuses everything while a flag is set.
func newUnreliable() (*memory.Store, *atomic.Bool) {
	store, isAway := memory.New(), &atomic.Bool{}
	store.Before = func(string, string) error {
		if isAway.Load() {
			return fmt.Errorf("%w: test", objects.ErrUnavailable)
		}
		return nil
	}
	return store, isAway
}

func TestAReadWaitsForTheStore(t *testing.T) {
	store, isAway := newUnreliable()
	socket, content := start(t, store, time.Minute)
	isAway.Store(true)
	time.AfterFunc(time.Second, func() { isAway.Store(false) })
	begin := time.Now()
	raw := filepath.Join(t.TempDir(), "raw")
	output, err := run("qemu-img", "convert", "-f", "raw", "-O", "raw", uri(socket, "o/d/1"), raw)
	found, _ := os.ReadFile(raw)
	if err != nil || !bytes.Equal(found, content) || time.Since(begin) < time.Second {
		t.Errorf("%v %s after %v", err, output, time.Since(begin))
	}
}

func TestAReadFailsAtItsDeadlineAndOnCorruption(t *testing.T) {
	store, isAway := newUnreliable()
	socket, _ := start(t, store, 300*time.Millisecond)
	damage := func() {
		for _, key := range store.Keys("blocks/o/segments/") {
			store.Damage(key, 40)
		}
	}
	read := []string{"-r", "-f", "raw", "-c", "read 0 64k", uri(socket, "o/d/1")}
	damage()
	if output, _ := run("qemu-io", read...); !strings.Contains(output, "Input/output error") {
		t.Errorf("corruption: %s", output)
	}
	damage()
	if output, _ := run("qemu-io", read...); strings.Contains(output, "error") {
		t.Errorf("repaired: %s", output)
	}
	isAway.Store(true)
	read[4] = "read 70M 64k"
	if output, _ := run("qemu-io", read...); !strings.Contains(output, "Input/output error") {
		t.Errorf("outage: %s", output)
	}
}

// connect chooses the export by the oldest way to do so.
func connect(t *testing.T, socket string) net.Conn {
	t.Helper()
	client, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	_ = client.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = client.Write([]byte("\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x05o/d/1"))
	if err == nil {
		_, err = io.ReadFull(client, make([]byte, 18+10))
	}
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func readRequest(offset, length int) []byte {
	request := []byte{0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(request, uint64(offset)), uint32(length))
}

// TestAClientThatReadsNoAnswersDoesNotStopTheOthers fills all that one client may use.
func TestAClientThatReadsNoAnswersDoesNotStopTheOthers(t *testing.T) {
	var user atomic.Uint32
	socket, content := startFor(t, memory.New(), nbd.Options{ReadTime: time.Minute, MemoryBytes: 32 << 20,
		UserOf: func(net.Conn) uint32 { return user.Load() }})
	user.Store(1)
	for range 20 {
		hostile := connect(t, socket)
		for range 100 {
			_ = hostile.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			if _, err := hostile.Write(readRequest(0, 8<<20)); err != nil {
				break
			}
		}
	}
	user.Store(2)
	honest := connect(t, socket)
	answer := make([]byte, 16+4096)
	_, err := honest.Write(readRequest(1<<20, 4096))
	if err == nil {
		_, err = io.ReadFull(honest, answer)
	}
	if err != nil || !bytes.Equal(answer[16:], content[1<<20:1<<20+4096]) {
		t.Errorf("the other client: %v", err)
	}
}

func TestAClientHasAFewConnections(t *testing.T) {
	var user atomic.Uint32
	socket, _ := startFor(t, memory.New(), nbd.Options{ReadTime: time.Minute, UserOf: func(net.Conn) uint32 { return user.Load() }})
	open := func() (isOpen bool) {
		client, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		_ = client.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = io.ReadFull(client, make([]byte, 18))
		return err == nil
	}
	count := 0
	for range 100 {
		if open() {
			count++
		}
	}
	if count != 32 {
		t.Errorf("%d connections", count)
	}
	user.Store(1)
	if !open() {
		t.Error("another client may not connect")
	}
}

// FuzzConnection sends arbitrary bytes after the greeting.
func FuzzConnection(f *testing.F) {
	socket, _ := start(f, memory.New(), time.Second)
	f.Add([]byte("\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x0b\x00\x00\x00\x05o/d/1\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x0a\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		client, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_ = client.SetDeadline(time.Now().Add(5 * time.Second))
		go func() {
			_, _ = client.Write(sent)
			_ = client.(*net.UnixConn).CloseWrite()
		}()
		if _, err := io.Copy(io.Discard, client); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Error("the server neither answers nor ends")
		}
	})
}
