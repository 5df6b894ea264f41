package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"coppice/blocks/internal/objects"
	"coppice/blocks/testing/s3server"
)

type transferAnswer struct {
	Result struct {
		IsRepeated   bool  `json:"repeated"`
		SentChunks   int   `json:"sent_chunks"`
		SentBytes    int64 `json:"sent_bytes"`
		StoredBytes  int64 `json:"stored_bytes"`
		FetchedBytes int64 `json:"fetched_bytes"`
	} `json:"result"`
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

type runningTransfer struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// startTransfer starts `blocks store` or `blocks fetch` with one file.
func startTransfer(t *testing.T, kind, store string, file *os.File) *runningTransfer {
	t.Helper()
	command := exec.Command(os.Args[0], kind, "--store", store)
	command.Env = append(os.Environ(), "BLOCKS_TEST_COMMAND=1")
	command.ExtraFiles, command.Stderr = []*os.File{file}, os.Stderr
	in, inErr := command.StdinPipe()
	out, outErr := command.StdoutPipe()
	if err := command.Start(); inErr != nil || outErr != nil || err != nil {
		t.Fatal(inErr, outErr, err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	if _, err := fmt.Fprintln(in, `{"org":"o","capture":"snap1","about":"a","timeout_ms":60000,"files":[{"name":"ram","fd":3}]}`); err != nil {
		t.Fatal(err)
	}
	return &runningTransfer{command, in, bufio.NewReader(out)}
}

func (r *runningTransfer) answer(t *testing.T) (answer transferAnswer) {
	t.Helper()
	line, err := r.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.command.Wait(); err != nil {
		t.Fatal(err)
	}
	return answer
}

func countChunks(t *testing.T, store objects.Store) (count int) {
	t.Helper()
	for _, err := range store.List(context.Background(), "captures/o/chunks/", "") {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	return count
}

func TestAnUploadThatIsKilledContinuesWhereItEnded(t *testing.T) {
	location := s3server.Start(t)
	store, err := objects.Open(context.Background(), location, "")
	if err != nil {
		t.Fatal(err)
	}
	ram := makeNoise(t, 400<<20)
	first := startTransfer(t, "store", location, ram)
	for deadline := time.Now().Add(time.Minute); countChunks(t, store) < 30; {
		if time.Now().After(deadline) {
			t.Fatal("the upload does not begin")
		}
	}
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.command.Wait()
	before := countChunks(t, store)
	if before >= 400 {
		t.Fatal("the upload was complete before it was killed")
	}
	second := startTransfer(t, "store", location, ram).answer(t)
	if second.Error.Code != "" || second.Result.SentChunks > 400-before || second.Result.StoredBytes < 400<<20 {
		t.Errorf("%d chunks were there: %+v", before, second)
	}
	target, err := os.Create(filepath.Join(t.TempDir(), "target"))
	if err != nil {
		t.Fatal(err)
	}
	if fetched := startTransfer(t, "fetch", location, target).answer(t); fetched.Error.Code != "" {
		t.Errorf("%+v", fetched)
	}
	assertEqualFiles(t, ram.Name(), target.Name())
}

func TestATransferEndsWithItsRunner(t *testing.T) {
	running := startTransfer(t, "store", s3server.Start(t), makeNoise(t, 400<<20))
	if err := running.in.Close(); err != nil {
		t.Fatal(err)
	}
	if answer := running.answer(t); answer.Error.Code == "" {
		t.Errorf("%+v", answer)
	}
}

func makeNoise(t *testing.T, size int) *os.File {
	t.Helper()
	content, random := make([]byte, size), rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content)
	path := filepath.Join(t.TempDir(), "ram")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func assertEqualFiles(t *testing.T, a, b string) {
	t.Helper()
	first, errA := os.ReadFile(a)
	second, errB := os.ReadFile(b)
	if errA != nil || errB != nil || !bytes.Equal(first, second) {
		t.Errorf("the files differ: %v, %v", errA, errB)
	}
}
