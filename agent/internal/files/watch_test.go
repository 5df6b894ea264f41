package files

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/api"
)

// watching is a watch as its client sees it.
type watching struct {
	t     *testing.T
	call  *agenttest.Call
	lines *bufio.Scanner
}

func startWatch(t *testing.T, routes api.Router, dir string, recursive bool) *watching {
	t.Helper()
	machine := agenttest.NewMachine(t, func(func(context.Context) bool) api.Router { return routes })
	query := url.Values{"path": {dir}, "recursive": {strconv.FormatBool(recursive)}}
	call := machine.Ask("GET", "/files/watch?"+query.Encode(), "")
	if call.Answer.StatusCode != http.StatusOK {
		t.Fatal(call.Answer.Status)
	}
	return &watching{t: t, call: call, lines: bufio.NewScanner(call.Answer.Body)}
}

// next returns the next event, or nil at the end.
func (w *watching) next() *event {
	w.t.Helper()
	for w.lines.Scan() {
		if len(w.lines.Bytes()) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(w.lines.Bytes(), &e); err != nil {
			w.t.Fatal(err)
		}
		return &e
	}
	if err := w.lines.Err(); err != nil {
		w.t.Fatal(err)
	}
	return nil
}

// until skips events until one is wanted, and returns those before it.
func (w *watching) until(wanted event) []event {
	w.t.Helper()
	var skipped []event
	for e := w.next(); e != nil; e = w.next() {
		if *e == wanted {
			return skipped
		}
		skipped = append(skipped, *e)
	}
	w.t.Fatalf("no %+v among %+v", wanted, skipped)
	return nil
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestAWatchReportsEachKindOfChange(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fill(t, dir, "old", "gone", "leaves")
	fill(t, outside, "comes")
	w := startWatch(t, newRoutes("/"), dir, false)
	fill(t, dir, "new", "d/")
	must(t, os.Chmod(dir+"/old", 0o644), os.Remove(dir+"/gone"), os.Rename(dir+"/old", dir+"/a\nb"),
		os.Rename(dir+"/leaves", outside+"/leaves"), os.Rename(outside+"/comes", dir+"/comes"))
	for _, wanted := range []event{
		{Type: "created", Path: dir + "/new"},
		{Type: "modified", Path: dir + "/new"},
		{Type: "created", Path: dir + "/d", Directory: true},
		{Type: "attributes", Path: dir + "/old"},
		{Type: "removed", Path: dir + "/gone"},
		{Type: "renamed", Path: dir + "/a\nb", From: dir + "/old"},
		{Type: "removed", Path: dir + "/leaves"},
		{Type: "created", Path: dir + "/comes"},
	} {
		w.until(wanted)
	}
}

func TestAWatchOfOneDirectoryDoesNotReportWhatIsInOthers(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "d/")
	w := startWatch(t, newRoutes("/"), dir, false)
	fill(t, dir, "d/inner", "last")
	if skipped := w.until(event{Type: "created", Path: dir + "/last"}); len(skipped) > 0 {
		t.Fatal(skipped)
	}
}

func TestARecursiveWatchFollowsNewAndRenamedDirectories(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "d/", "d/e/")
	w := startWatch(t, newRoutes("/"), dir, true)
	fill(t, dir, "d/e/f")
	w.until(event{Type: "created", Path: dir + "/d/e/f"})
	fill(t, dir, "n/m/o/", "n/m/o/deep")
	w.until(event{Type: "created", Path: dir + "/n/m/o/deep"})
	must(t, os.Rename(dir+"/d", dir+"/n/d"))
	w.until(event{Type: "renamed", Path: dir + "/n/d", From: dir + "/d", Directory: true})
	fill(t, dir, "n/d/e/g")
	w.until(event{Type: "created", Path: dir + "/n/d/e/g"})
}

func TestADirectoryThatIsRenamedRightAfterItsCreationIsWatched(t *testing.T) {
	dir := t.TempDir()
	w, err := openWatch(context.Background(), dir, true)
	must(t, err)
	defer closeLogged(w.queue)
	answer := httptest.NewRecorder()
	w.lines = &eventLines{Lines: api.BeginLines(answer)}
	fill(t, dir, "new/", "new/inner/", "new/f")
	must(t, os.Rename(dir+"/new", dir+"/to"))
	buffer := make([]byte, watchBuffer)
	if _, err := w.step(buffer); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(answer.Body.String(), `"created","path":"`+dir+`/to/f"`) {
		t.Fatal(answer.Body)
	}
	answer.Body.Reset()
	fill(t, dir, "to/inner/late")
	if _, err := w.step(buffer); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(answer.Body.String(), `"created","path":"`+dir+`/to/inner/late"`) {
		t.Fatal(answer.Body)
	}
}

func TestADirectoryThatLeavesTheTreeIsNoLongerWatched(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fill(t, dir, "d/", "d/e/")
	w := startWatch(t, newRoutes("/"), dir, true)
	must(t, os.Rename(dir+"/d", outside+"/d"))
	w.until(event{Type: "removed", Path: dir + "/d", Directory: true})
	fill(t, outside, "d/e/f")
	fill(t, dir, "last")
	if skipped := w.until(event{Type: "created", Path: dir + "/last"}); len(skipped) > 0 {
		t.Fatal(skipped)
	}
}

func TestAWatchEndsWithItsDirectory(t *testing.T) {
	for _, end := range []func(dir string) error{os.RemoveAll, func(dir string) error { return os.Rename(dir, dir+"-moved") }} {
		dir := t.TempDir() + "/d"
		fill(t, dir, "./")
		w := startWatch(t, newRoutes("/"), dir, true)
		must(t, end(dir))
		w.until(event{Type: "ended", Path: dir})
		if e := w.next(); e != nil {
			t.Fatal(e)
		}
	}
}

func TestOnlySoManyWatchesAreOpenUntilClientsLeave(t *testing.T) {
	dir := t.TempDir()
	routes := newRoutes("/")
	var open []*watching
	for range maxWatches {
		open = append(open, startWatch(t, routes, dir, false))
	}
	expect(t, do(routes, "GET", "/files/watch", dir, nil), 409, "invalid_state")
	for _, w := range open {
		w.call.Leave()
	}
	agenttest.Eventually(t, "the watches have ended", func() bool {
		machine := agenttest.NewMachine(t, func(func(context.Context) bool) api.Router { return routes })
		call := machine.Ask("GET", "/files/watch?path="+url.QueryEscape(dir), "")
		defer call.Leave()
		return call.Answer.StatusCode == http.StatusOK
	})
}

func TestAWatchOfNoDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "f")
	expect(t, do(newRoutes("/"), "GET", "/files/watch", dir+"/f", nil), 400, "path: ")
	expect(t, do(newRoutes("/"), "GET", "/files/watch", dir+"/none", nil), 404, "file_not_found")
}

func TestALostEventIsReportedAndNewDirectoriesAreWatched(t *testing.T) {
	dir := t.TempDir()
	w, err := openWatch(context.Background(), dir, true)
	must(t, err)
	defer closeLogged(w.queue)
	answer := httptest.NewRecorder()
	w.lines = &eventLines{Lines: api.BeginLines(answer)}
	fill(t, dir, "unseen/")
	if _, err := w.handle(&kernelEvent{id: -1, mask: unix.IN_Q_OVERFLOW}); err != nil {
		t.Fatal(err)
	}
	if answer.Body.String() != "{\"type\":\"lost\"}\n" {
		t.Fatal(answer.Body)
	}
	var isWatched bool
	for _, known := range w.paths {
		isWatched = isWatched || known == dir+"/unseen"
	}
	if !isWatched {
		t.Fatal(w.paths)
	}
}

func TestAWatchOfTooManyDirectoriesIsRefused(t *testing.T) {
	dir := t.TempDir()
	for i := range maxWatchedDirectories {
		must(t, os.Mkdir(fmt.Sprintf("%s/%d", dir, i), 0o755))
	}
	answer := httptest.NewRecorder()
	query := url.Values{"path": {dir}, "recursive": {"true"}}
	newRoutes("/").ServeHTTP(answer, httptest.NewRequest("GET", "/files/watch?"+query.Encode(), nil))
	expect(t, answer, 400, "recursive: ")
}

func TestEventsOfTheKernelAreParsedWithinTheirBounds(t *testing.T) {
	one := make([]byte, unix.SizeofInotifyEvent+16)
	binary.NativeEndian.PutUint32(one, 7)
	binary.NativeEndian.PutUint32(one[4:], unix.IN_CREATE)
	binary.NativeEndian.PutUint32(one[12:], 16)
	copy(one[16:], "name")
	two := bytes.Repeat(one, 2)
	if events := parseEvents(two); len(events) != 2 || events[1] != (kernelEvent{id: 7, mask: unix.IN_CREATE, name: "name"}) {
		t.Fatal(events)
	}
	if events := parseEvents(two[:len(two)-1]); len(events) != 1 {
		t.Fatal(events)
	}
}
