package supervise_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"coppice/blocks/internal/supervise"
)

// hangsOnce is a server whose first life gets ready and then answers nothing. The next ones answer with the number of
// requests so far.
const hangsOnce = `
echo '{"event":"ready"}'
if [ ! -e "$0" ]; then touch "$0"; exec sleep 1000; fi
count=0
while read -r line; do count=$((count + 1)); echo "$line" | sed "s/\"op\".*/\"result\":$count}/"; done`

func TestAServerThatHangsIsReplaced(t *testing.T) {
	life := filepath.Join(t.TempDir(), "life")
	requests, asks := io.Pipe()
	answers, out := io.Pipe()
	s := &supervise.Supervisor{
		Command:  func() *exec.Cmd { return exec.Command("sh", "-c", hangsOnce, life) },
		Log:      slog.New(slog.NewTextHandler(io.Discard, nil)),
		PingTime: 20 * time.Millisecond,
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background(), requests, out) }()
	lines := bufio.NewScanner(answers)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, wanted %q", lines.Text(), want)
		}
	}
	expect(supervise.Ready)
	_, _ = fmt.Fprintln(asks, `{"id":1,"op":"stat"}`)
	expect(`{"error":{"code":"restarted","message":"the block server ended before it answered"},"id":1}`)
	// The next one answers the questions, so it is not replaced again.
	for result := 0; result < 40; {
		_, _ = fmt.Fprintln(asks, `{"id":2,"op":"stat"}`)
		var answer struct{ ID, Result int }
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &answer) != nil || answer.ID != 2 || answer.Result <= result {
			t.Fatalf("%q after result %d", lines.Text(), result)
		}
		result = answer.Result
		time.Sleep(s.PingTime)
	}
	_ = asks.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
