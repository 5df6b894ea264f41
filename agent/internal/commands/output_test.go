package commands

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/frame"
	"coppice/agent/internal/stream"
)

// newBudget keeps files in a directory of the test.
func newBudget(t *testing.T, limit int64) *budget {
	t.Helper()
	directory := t.TempDir()
	return &budget{atMost: limit, create: func() (*os.File, error) {
		return os.OpenFile(directory, os.O_RDWR|unix.O_TMPFILE, 0o600)
	}}
}

// collect reads all that is there, and returns the parts and where the reader began.
func collect(t *testing.T, r *reader) (out, errs []byte, begins int64, gaps int) {
	t.Helper()
	begins = -1
	for {
		kind, payload, changed, err := r.next()
		if errors.Is(err, errGap) {
			gaps++
			continue
		}
		if errors.Is(err, io.EOF) || changed != nil {
			return out, errs, begins, gaps
		}
		if err != nil {
			t.Fatal(err)
		}
		if begins < 0 {
			begins = r.position() - int64(len(payload))
		}
		if kind == frame.Stdout {
			out = append(out, payload...)
		} else {
			errs = append(errs, payload...)
		}
	}
}

func TestOutputIsReadFromEveryPosition(t *testing.T) {
	o := newOutput(1<<30, newBudget(t, 1<<30))
	var whole []byte
	random := rand.New(rand.NewSource(1))
	for len(whole) < 3*memoryBytes {
		part := make([]byte, 1+random.Intn(3000))
		random.Read(part)
		o.Send(frame.Encode(frame.Stdout, part))
		whole = append(whole, part...)
	}
	o.finish()
	for range 200 {
		position := random.Intn(len(whole) + 1)
		out, _, begins, gaps := collect(t, o.readFrom(int64(position)))
		if gaps != 0 || !bytes.Equal(out, whole[position:]) || len(out) > 0 && begins != int64(position) {
			t.Fatalf("from %d: %d bytes from %d on, %d gaps", position, len(out), begins, gaps)
		}
	}
	if out, _, _, _ := collect(t, o.readFrom(1<<40)); len(out) != 0 {
		t.Fatal("output after the end")
	}
}

func TestTheStreamsStayApart(t *testing.T) {
	o := newOutput(1<<20, newBudget(t, 1<<20))
	for _, kind := range []byte{frame.Stdout, frame.Stderr, frame.Stdout} {
		o.Send(frame.Encode(kind, []byte{'0' + kind%10}))
	}
	out, errs, _, _ := collect(t, o.readFrom(0))
	if string(out) != "66" || string(errs) != "7" {
		t.Fatalf("%q %q", out, errs)
	}
}

func TestTheOldestOutputIsDroppedAtTheLimit(t *testing.T) {
	shared := newBudget(t, 1<<30)
	o := newOutput(2<<20, shared)
	part := bytes.Repeat([]byte("x"), stream.ChunkBytes)
	slow := o.readFrom(0)
	for range 160 {
		o.Send(frame.Encode(frame.Stdout, part))
	}
	written, dropped := o.counts()
	if written != 160*stream.ChunkBytes || written-dropped > 2<<20 || written-dropped < 1<<20 {
		t.Fatalf("%d written, %d dropped", written, dropped)
	}
	out, _, begins, gaps := collect(t, slow)
	if gaps != 1 || begins != dropped || int64(len(out)) != written-dropped {
		t.Fatalf("%d bytes from %d on, %d gaps; %d dropped", len(out), begins, gaps, dropped)
	}
	var state unix.Stat_t
	if err := unix.Fstat(int(o.file.Fd()), &state); err != nil || state.Blocks*512 > 2<<20+punchBytes+1<<20 {
		t.Fatal(state.Blocks*512, err)
	}
	if shared.used > 4<<20 {
		t.Fatal(shared.used, "bytes are counted")
	}
	if o.discard(); shared.used != 0 {
		t.Fatal(shared.used, "bytes are counted for nothing")
	}
}

func TestWithoutAFileTheNewestOutputIsKept(t *testing.T) {
	o := newOutput(1<<20, &budget{create: func() (*os.File, error) { return nil, unix.ENOSPC }})
	var whole []byte
	for at := 0; at < 40*memoryBytes; at += 999 {
		part := bytes.Repeat([]byte{byte(at)}, 999)
		o.Send(frame.Encode(frame.Stdout, part))
		whole = append(whole, part...)
	}
	out, _, _, gaps := collect(t, o.readFrom(0))
	if gaps != 1 || len(out) < memoryBytes/2 || len(o.memory) > memoryBytes || !bytes.HasSuffix(whole, out) {
		t.Fatalf("%d bytes, %d gaps, %d in memory", len(out), gaps, len(o.memory))
	}
}

// A full disk is a file that cannot grow.
func TestAFullDiskDropsWhatIsInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full")
	opened := 0
	o := newOutput(64<<20, &budget{atMost: 1 << 40, create: func() (*os.File, error) {
		if opened++; opened > 1 {
			return nil, unix.ENOSPC
		}
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}})
	send := func() { o.Send(frame.Encode(frame.Stdout, make([]byte, 50_000))) }
	send()
	send()
	if o.file == nil {
		t.Fatal("not in a file yet")
	}
	full, err := os.Open(path) // read-only: writes fail
	if err != nil {
		t.Fatal(err)
	}
	_ = o.file.Close()
	o.file = full
	send()
	if out, _, begins, gaps := collect(t, o.readFrom(0)); gaps != 1 || begins != 100_000 || len(out) != 50_000 {
		t.Fatalf("%d bytes from %d on, %d gaps", len(out), begins, gaps)
	}
	if _, dropped := o.counts(); dropped != 100_000 {
		t.Fatal(dropped)
	}
}

func TestOutputsTogetherStayBelowTheirLimit(t *testing.T) {
	shared := newBudget(t, 8<<20)
	outputs := make([]*output, 4)
	for i := range outputs {
		outputs[i] = newOutput(1<<30, shared)
	}
	part := frame.Encode(frame.Stdout, make([]byte, stream.ChunkBytes))
	for range 256 {
		for _, o := range outputs {
			o.Send(part)
		}
	}
	if shared.used > 8<<20 {
		t.Fatal(shared.used)
	}
	for i, o := range outputs {
		if o.size() < 1<<20 {
			t.Fatal(i, "keeps", o.size(), "of its share of 2 MiB")
		}
	}
}

func TestTheOutputOfACommandThatHasEndedGoesFirst(t *testing.T) {
	shared := newBudget(t, 4<<20)
	part := frame.Encode(frame.Stdout, make([]byte, stream.ChunkBytes))
	outputs := make([]*output, 4)
	for i := range outputs {
		outputs[i] = newOutput(1<<30, shared)
		for outputs[i].size() < 1<<20 && i < 3 {
			outputs[i].Send(part)
		}
	}
	small, first, second, running := outputs[3], outputs[0], outputs[1], outputs[2]
	small.Send(frame.Encode(frame.Stdout, []byte("small")))
	small.finish()
	first.finish()
	second.finish()
	for running.size() < 2<<20+1<<19 {
		running.Send(part)
	}
	if _, dropped := first.counts(); dropped < 1<<19 {
		t.Fatal("only", dropped, "bytes of the command that ended first are dropped")
	}
	for _, o := range []*output{second, running, small} {
		if _, dropped := o.counts(); dropped != 0 {
			t.Fatal(dropped, "bytes are dropped")
		}
	}
	if _, _, _, gaps := collect(t, first.readFrom(0)); gaps != 1 {
		t.Fatal("a reader does not learn of it")
	}
}

func TestSilentOutputsAboveTheirShareAreShrunk(t *testing.T) {
	shared := newBudget(t, 8<<20)
	part := frame.Encode(frame.Stdout, make([]byte, stream.ChunkBytes))
	for range 64 {
		o := newOutput(1<<30, shared)
		for o.end.position < 2<<20 {
			o.Send(part)
		}
	}
	if shared.used > 8<<20 {
		t.Fatal(shared.used)
	}
}

func TestAFileThatIsFullIsFollowedByAnother(t *testing.T) {
	o := newOutput(1<<20, newBudget(t, 1<<30))
	part := frame.Encode(frame.Stdout, make([]byte, stream.ChunkBytes))
	for range 4 {
		o.Send(part)
	}
	o.base -= maxFileBytes // as after a terabyte
	for range 4 {
		o.Send(part)
	}
	out, _, begins, _ := collect(t, o.readFrom(0))
	if o.file == nil || begins != 4*stream.ChunkBytes || len(out) != 4*stream.ChunkBytes {
		t.Fatal(begins, len(out), o.file)
	}
}

func TestASmallDiskLimitsAllOutputs(t *testing.T) {
	shared := newBudget(t, 1<<50)
	file, err := shared.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &disk); err != nil {
		t.Fatal(err)
	}
	if size := int64(disk.Blocks) * disk.Bsize; shared.limit != size/diskParts {
		t.Fatal(shared.limit, "of", size)
	}
	shared.close(nil, file)
}
