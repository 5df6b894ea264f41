package files

import (
	"errors"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/guest"
)

// newUserRoutes serves an image whose USER is user, and which has the users app (1000:1001) and other (7:8).
func newUserRoutes(t *testing.T, user string) api.Router {
	t.Helper()
	root := t.TempDir()
	passwd := "app:x:1000:1001::/home/app:/bin/sh\nother:x:7:8::/:/bin/sh\n"
	if err := errors.Join(os.Mkdir(root+"/etc", 0o755), os.WriteFile(root+"/etc/passwd", []byte(passwd), 0o600)); err != nil {
		t.Fatal(err)
	}
	return newRoutesOf(guest.Settings{Workdir: "/", User: user}, root)
}

func put(routes api.Router, path string, more url.Values) *httptest.ResponseRecorder {
	query := url.Values{"path": {path}}
	for name, values := range more {
		query[name] = values
	}
	answer := httptest.NewRecorder()
	routes.ServeHTTP(answer, httptest.NewRequest("PUT", "/files?"+query.Encode(), strings.NewReader("new")))
	return answer
}

func expectOwner(t *testing.T, path string, uid, gid, mode uint32) {
	t.Helper()
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		t.Fatal(err)
	}
	if info.Uid != uid || info.Gid != gid || info.Mode&maxMode != mode {
		t.Errorf("%s: %d:%d %o, want %d:%d %o", path, info.Uid, info.Gid, info.Mode&maxMode, uid, gid, mode)
	}
}

func TestFilesAndNewDirectoriesBelongToTheImagesUser(t *testing.T) {
	dir := t.TempDir()
	expect(t, put(newUserRoutes(t, "app"), dir+"/a/b/c", nil), 200, "")
	for _, path := range []string{"/a", "/a/b"} {
		expectOwner(t, dir+path, 1000, 1001, 0o755)
	}
	expectOwner(t, dir+"/a/b/c", 1000, 1001, 0o644)
	expect(t, put(newUserRoutes(t, ""), dir+"/root", nil), 200, "")
	expectOwner(t, dir+"/root", 0, 0, 0o644)
}

func TestAnUploadCanNameItsUser(t *testing.T) {
	dir := t.TempDir()
	routes := newUserRoutes(t, "app")
	for user, want := range map[string][2]uint32{"other": {7, 8}, "7": {7, 8}, "0": {0, 0}, "42:43": {42, 43}, "app:9": {1000, 9}} {
		expect(t, put(routes, dir+"/"+user+"/f", url.Values{"user": {user}, "mode": {"6750"}}), 200, "")
		expectOwner(t, dir+"/"+user, want[0], want[1], 0o755)
		expectOwner(t, dir+"/"+user+"/f", want[0], want[1], 0o6750)
	}
}

func TestAFileIsRootsIfTheImageDoesNotHaveItsUser(t *testing.T) {
	dir := t.TempDir()
	expect(t, put(newUserRoutes(t, "missing"), dir+"/new/f", nil), 200, "")
	expectOwner(t, dir+"/new/f", 0, 0, 0o644)
}

func TestAnUnknownUserIsRefusedBeforeAnythingIsCreated(t *testing.T) {
	dir := t.TempDir()
	expect(t, put(newUserRoutes(t, "app"), dir+"/new/f", url.Values{"user": {"missing"}}), 400, "user:")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatal(entries, err)
	}
}

// replace uploads, as the image's USER app, over a file with the given owner and mode.
func replace(t *testing.T, owner [2]int, mode uint32, more url.Values) string {
	t.Helper()
	path := t.TempDir() + "/old"
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(path, owner[0], owner[1]), unix.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	expect(t, put(newUserRoutes(t, "app"), path, more), 200, "")
	if content(t, path) != "new" {
		t.Fatal("not replaced")
	}
	return path
}

func TestAReplacedFileKeepsItsModeAndGetsTheOwnerOfTheUpload(t *testing.T) {
	expectOwner(t, replace(t, [2]int{1000, 1001}, 0o4750, nil), 1000, 1001, 0o4750)
	expectOwner(t, replace(t, [2]int{0, 0}, 0o640, nil), 1000, 1001, 0o640)
	expectOwner(t, replace(t, [2]int{0, 0}, 0o640, url.Values{"mode": {"600"}}), 1000, 1001, 0o600)
}

func TestSetIDBitsOfAReplacedFileDoNotPassToAnotherOwner(t *testing.T) {
	expectOwner(t, replace(t, [2]int{0, 0}, 0o6755, nil), 1000, 1001, 0o755)
	expectOwner(t, replace(t, [2]int{1000, 1001}, 0o4755, url.Values{"user": {"0"}}), 0, 0, 0o755)
	expectOwner(t, replace(t, [2]int{1000, 1}, 0o2755, nil), 1000, 1001, 0o755)
	expectOwner(t, replace(t, [2]int{0, 0}, 0o755, url.Values{"mode": {"4755"}}), 1000, 1001, 0o4755)
}

func TestUploadWritesThroughSymlinks(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Symlink("sub/target", dir+"/link"), os.Symlink("link", dir+"/link2"), os.Symlink("loop", dir+"/loop"),
		os.MkdirAll(dir+"/real/deep", 0o755), os.Symlink("real/deep", dir+"/short"), os.Symlink("../up", dir+"/real/deep/link"),
		os.Symlink(dir, dir+"/toDirectory"), os.Symlink("missing/", dir+"/dangling"), os.Symlink("nowhere", dir+"/way"),
	); err != nil {
		t.Fatal(err)
	}
	routes := newUserRoutes(t, "app")
	expect(t, put(routes, dir+"/link2", nil), 200, `"path":"`+dir+`/link2"`)
	if target, err := os.Readlink(dir + "/link"); content(t, dir+"/sub/target") != "new" || target != "sub/target" || err != nil {
		t.Fatal("the link was replaced", err)
	}
	expectOwner(t, dir+"/sub", 1000, 1001, 0o755)
	expectOwner(t, dir+"/real", 0, 0, 0o755)
	expect(t, put(routes, dir+"/short/link", nil), 200, "")
	if content(t, dir+"/real/up") != "new" {
		t.Fatal("the link was not resolved from its own directory")
	}
	expect(t, put(routes, dir+"/loop", nil), 400, "(ELOOP)")
	expect(t, put(routes, dir+"/toDirectory", nil), 400, "not a regular file")
	expect(t, put(routes, dir+"/dangling", nil), 400, "is a directory")
	expect(t, put(routes, dir+"/way/f", nil), 404, "cannot create the directory way")
}

func TestAFailedUploadNamesItsErrno(t *testing.T) {
	routes := newUserRoutes(t, "")
	for path, want := range map[string]string{
		"/dev/null/f":                      "(ENOTDIR)",
		"/tmp/" + strings.Repeat("x", 300): "(ENAMETOOLONG)",
		"/proc/self/f":                     "(ENOENT)",
		"/sys/f":                           "(E",
	} {
		answer := put(routes, path, nil)
		if answer.Code < 400 || answer.Code > 404 || !strings.Contains(answer.Body.String(), want) {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
}
