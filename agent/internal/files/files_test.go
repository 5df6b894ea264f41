package files

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
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
	state := &guest.State{}
	state.Set(guest.Settings{Workdir: dir})
	service := New(state)
	return api.Router{"PUT /files": service.Put, "GET /files": service.Get, "HEAD /files": service.Get, "GET /list": service.List}
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

func TestUploadKeepsModeAndOwnerOfAReplacedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(path, 1234, 4321), unix.Chmod(path, 0o4755)); err != nil {
		t.Fatal(err)
	}
	expect(t, do(newRoutes("/"), "PUT", "/files", path, strings.NewReader("new")), 200, "")
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		t.Fatal(err)
	}
	if info.Uid != 1234 || info.Gid != 4321 || info.Mode&maxMode != 0o4755 || content(t, path) != "new" {
		t.Fatalf("%d:%d %o", info.Uid, info.Gid, info.Mode)
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

func TestUploadWritesThroughASymlink(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Symlink("sub/target", dir+"/link"), os.Symlink("link", dir+"/link2"), os.Symlink("loop", dir+"/loop")); err != nil {
		t.Fatal(err)
	}
	routes := newRoutes(dir)
	expect(t, do(routes, "PUT", "/files", dir+"/link2", strings.NewReader("x")), 200, "")
	if target, err := os.Readlink(dir + "/link"); content(t, dir+"/sub/target") != "x" || target != "sub/target" || err != nil {
		t.Fatal("the link was replaced", err)
	}
	expect(t, do(routes, "PUT", "/files", dir+"/loop", strings.NewReader("x")), 400, "symbolic links")
}

// brokenBody fails after some bytes, as a stream that is reset.
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
	expect(t, do(routes, "PUT", "/files", dir+"/f", &brokenBody{left: 1_000_000}), 400, "broken off after 1000000 bytes")
	expect(t, do(routes, "PUT", "/files", dir+"/new", &brokenBody{left: 5}), 400, "broken off")
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

func TestDownloadServesWholeFilesRangesAndHeads(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	routes := newRoutes(dir)
	cases := []struct {
		asked         string
		status        int
		body, content string
	}{
		{"", 200, "0123456789", ""},
		{"bytes=2-4", 206, "234", "bytes 2-4/10"},
		{"bytes=7-", 206, "789", "bytes 7-9/10"},
		{"bytes=7-100", 206, "789", "bytes 7-9/10"},
		{"bytes=-3", 206, "789", "bytes 7-9/10"},
		{"bytes=10-", 416, "", "bytes */10"},
		{"bytes=0-1,3-4", 200, "0123456789", ""},
		{"lines=1-2", 200, "0123456789", ""},
	}
	for _, c := range cases {
		answer := do(routes, "GET", "/files", "f", nil, "range", c.asked)
		if answer.Code != c.status || answer.Body.String() != c.body || answer.Header().Get("content-range") != c.content {
			t.Errorf("%q: %d %q %q", c.asked, answer.Code, answer.Body, answer.Header().Get("content-range"))
		}
	}
	head := do(routes, "HEAD", "/files", "f", nil)
	if head.Code != 200 || head.Header().Get("content-length") != "10" || head.Body.Len() != 0 {
		t.Error(head.Code, head.Header(), head.Body)
	}
}

func TestDownloadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	routes := newRoutes(dir)
	expect(t, do(routes, "GET", "/files", "missing", nil), 404, "file_not_found")
	for _, path := range []string{dir, "pipe", "/dev/zero", "", "a\x00b", "/dev/null/x"} {
		expect(t, do(routes, "GET", "/files", path, nil), 400, "invalid_request")
	}
}

func TestAFileThatShrinksEndsInAReset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = file.Close()
		if recover() != http.ErrAbortHandler {
			t.Fatal("the answer ended as if it were whole")
		}
	}()
	send(httptest.NewRecorder(), file, 100)
}

func TestListIsSortedAndDescribesEntries(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/b\xffad", []byte("12345"), 0o600), unix.Chmod(dir+"/d", 0o1777),
		os.Symlink("/nowhere", dir+"/link"), unix.Mkfifo(dir+"/pipe", 0o644),
	); err != nil {
		t.Fatal(err)
	}
	answer := do(newRoutes(dir), "GET", "/list", dir+"/", nil)
	var entries []entry
	if err := json.Unmarshal(answer.Body.Bytes(), &entries); err != nil {
		t.Fatal(err, answer.Body)
	}
	want := []struct{ name, kind, mode, target string }{
		{"b\uFFFDad", "file", "0600", ""}, {"d", "dir", "1777", ""}, {"link", "symlink", "0777", "/nowhere"}, {"pipe", "other", "0644", ""},
	}
	if len(entries) != len(want) {
		t.Fatalf("%+v", entries)
	}
	for i, w := range want {
		if e := entries[i]; e.Name != w.name || e.Type != w.kind || e.Mode != w.mode || e.Target != w.target || e.Path != dir+"/"+w.name || len(e.Mtime) != 24 {
			t.Errorf("%+v, want %+v", e, w)
		}
	}
	if entries[0].Size != 5 {
		t.Error(entries[0].Size)
	}
}

func TestListOfAnEmptyDirectoryIsEmptyAndOfAFileAnError(t *testing.T) {
	dir := t.TempDir()
	routes := newRoutes(dir)
	if answer := do(routes, "GET", "/list", dir, nil); answer.Body.String() != "[]" {
		t.Error(answer.Body)
	}
	expect(t, do(routes, "GET", "/list", "/dev/null", nil), 400, "not a directory")
	expect(t, do(routes, "GET", "/list", dir+"/missing", nil), 404, "file_not_found")
}

func TestBeforeTheFirstResumeThereAreNoFiles(t *testing.T) {
	service := New(&guest.State{})
	routes := api.Router{"GET /files": service.Get, "PUT /files": service.Put, "GET /list": service.List}
	for _, call := range []string{"GET /files", "PUT /files", "GET /list"} {
		method, resource, _ := strings.Cut(call, " ")
		expect(t, do(routes, method, resource, "/etc/passwd", nil), 409, "invalid_state")
	}
}

func FuzzRange(f *testing.F) {
	f.Add("bytes=0-0", int64(1))
	f.Add("bytes=-99999999999999999999", int64(10))
	f.Add("bytes=5-1", int64(0))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		part, kind := parseRange(header, size)
		if kind != unsatisfiable && (part.first < 0 || part.length < 0 || part.first+part.length > size) {
			t.Fatalf("%q of %d: %+v", header, size, part)
		}
		if kind == partOfFile && part.length == 0 {
			t.Fatalf("%q of %d is empty", header, size)
		}
	})
}
