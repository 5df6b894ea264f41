package files

import (
	"errors"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/guest"
)

// newRoutes serves files with the working directory dir.
func newRoutes(dir string) api.Router {
	return newRoutesOf(guest.Settings{Workdir: dir}, "/")
}

// newRoutesOf serves files for an image with settings, whose accounts are below root.
func newRoutesOf(settings guest.Settings, root string) api.Router {
	state := &guest.State{}
	state.Set(settings)
	service := New(state, root)
	return api.Router{
		"PUT /files": service.Put, "GET /files": service.Get, "HEAD /files": service.Get, "GET /list": service.List,
		"GET /files/stat": service.Stat, "POST /files/mkdir": service.MakeDirectory, "POST /files/move": service.Move,
		"POST /files/remove": service.Remove, "POST /files/chmod": service.ChangeMode, "POST /files/chown": service.ChangeOwner,
		"GET /files/archive": service.Archive, "PUT /files/archive": service.Unpack,
		"GET /files/watch": service.Watch,
	}
}

func do(routes api.Router, method, resource, path string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, resource+"?path="+url.QueryEscape(path), body)
	if len(header) == 2 {
		request.Header.Set(header[0], header[1])
	}
	answer := httptest.NewRecorder()
	routes.ServeHTTP(answer, request)
	return answer
}

func expect(t *testing.T, answer *httptest.ResponseRecorder, status int, mention string) {
	t.Helper()
	if answer.Code != status || !strings.Contains(answer.Body.String(), mention) {
		t.Errorf("%d %s, want %d with %q", answer.Code, answer.Body, status, mention)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func modeOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return permissions(info)
}

func TestUploadCreatesParentsAndWritesWholeFiles(t *testing.T) {
	dir := t.TempDir()
	routes := newRoutes(dir)
	large := strings.Repeat("0123456789abcdef", 100_000)
	for path, text := range map[string]string{"/a/b/c": "hello", "/empty": "", "/large": large} {
		expect(t, do(routes, "PUT", "/files", dir+path, strings.NewReader(text)), 200, `"path":"`+dir+path+`"`)
		if content(t, dir+path) != text {
			t.Error(path, "differs")
		}
	}
	if mode := modeOf(t, dir+"/large"); mode != 0o644 {
		t.Errorf("mode %o", mode)
	}
}

func TestUploadTakesRelativePathsFromTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	expect(t, do(newRoutes(dir), "PUT", "/files", "x/y", strings.NewReader("1")), 200, dir+"/x/y")
	if content(t, dir+"/x/y") != "1" {
		t.Fatal("written elsewhere")
	}
}

func TestUploadTakesTheModeThatIsAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	answer := httptest.NewRecorder()
	newRoutes("/").ServeHTTP(answer, httptest.NewRequest("PUT", "/files?mode=0755&path="+path, strings.NewReader("")))
	if expect(t, answer, 200, ""); modeOf(t, path) != 0o755 {
		t.Fatalf("%o", modeOf(t, path))
	}
	answer = httptest.NewRecorder()
	newRoutes("/").ServeHTTP(answer, httptest.NewRequest("PUT", "/files?mode=999&path="+path, strings.NewReader("")))
	expect(t, answer, 400, "mode")
}

// brokenBody fails after some bytes, like a stream that is reset.
type brokenBody struct{ left int }

func (b *brokenBody) Read(buffer []byte) (int, error) {
	if b.left == 0 {
		return 0, errors.New("stream reset")
	}
	n := min(len(buffer), b.left)
	b.left -= n
	return n, nil
}

func TestABrokenUploadLeavesNothingAndKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	routes := newRoutes(dir)
	expect(t, do(routes, "PUT", "/files", dir+"/f", strings.NewReader("old")), 200, "")
	expect(t, do(routes, "PUT", "/files", dir+"/f", &brokenBody{left: 1_000_000}), 400, "ended early, after 1000000 bytes")
	expect(t, do(routes, "PUT", "/files", dir+"/new", &brokenBody{left: 5}), 400, "ended early")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || content(t, dir+"/f") != "old" {
		t.Fatal(entries, err)
	}
}

func TestAFullDiskIsReportedAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	expect(t, do(newRoutes(dir), "PUT", "/files", "big", strings.NewReader(strings.Repeat("x", 2<<20))), 507, "disk_full")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatal(entries, err)
	}
}

func TestUploadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	routes := newRoutes(dir)
	for _, path := range []string{"", "a\x00b", dir, dir + "/", "/", dir + "/new/", "/dev/null", dir + "/file/below", strings.Repeat("x", 300)} {
		if answer := do(routes, "PUT", "/files", path, strings.NewReader("x")); answer.Code != 400 {
			t.Errorf("%q: %d %s", path, answer.Code, answer.Body)
		}
	}
}

func TestBeforeTheFirstResumeThereAreNoFiles(t *testing.T) {
	service := New(&guest.State{}, "/")
	routes := api.Router{"GET /files": service.Get, "PUT /files": service.Put, "GET /list": service.List}
	for _, call := range []string{"GET /files", "PUT /files", "GET /list"} {
		method, resource, _ := strings.Cut(call, " ")
		expect(t, do(routes, method, resource, "/etc/passwd", nil), 409, "invalid_state")
	}
}
