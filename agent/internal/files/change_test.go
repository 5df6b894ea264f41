package files

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

// post sends fields as JSON.
func post(t *testing.T, routes api.Router, resource string, fields map[string]any) *httptest.ResponseRecorder {
	t.Helper()
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	routes.ServeHTTP(answer, httptest.NewRequest("POST", resource, strings.NewReader(string(body))))
	return answer
}

// fill makes directories and files below dir. A name that ends with a slash is a directory.
func fill(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(dir+"/"+name, 0o755)
		} else {
			err = os.WriteFile(dir+"/"+name, []byte(name), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestStatDescribesAFileItsOwnerAndASymlinkItself(t *testing.T) {
	dir := t.TempDir()
	routes := newUserRoutes(t, "app")
	fill(t, dir, "f", "d/")
	if err := errors.Join(os.Chown(dir+"/f", 1000, 5), os.Symlink("f", dir+"/link"), os.Symlink("d", dir+"/to-d")); err != nil {
		t.Fatal(err)
	}
	expect(t, do(routes, "GET", "/files/stat", dir+"/f", nil), 200, `"uid":1000,"gid":5,"user":"app"`)
	expect(t, do(routes, "GET", "/files/stat", dir+"/link", nil), 200, `"type":"symlink"`)
	expect(t, do(routes, "GET", "/files/stat", dir+"/link", nil), 200, `"target":"f"`)
	expect(t, do(routes, "GET", "/files/stat", dir+"/to-d/", nil), 200, `"type":"dir"`)
	expect(t, do(routes, "GET", "/files/stat", "/", nil), 200, `"name":"/","path":"/","type":"dir"`)
	expect(t, do(routes, "GET", "/files/stat", dir+"/none", nil), 404, "file_not_found")
	expect(t, do(routes, "GET", "/files/stat", "", nil), 400, "path: must not be empty")
}

func TestStatSurvivesNamesThatAreNotText(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "a\nb", "\xff")
	expect(t, do(newRoutes(dir), "GET", "/files/stat", dir+"/a\nb", nil), 200, `"name":"a\nb"`)
	expect(t, do(newRoutes(dir), "GET", "/files/stat", dir+"/\xff", nil), 200, `"name":"\ufffd"`)
}

func TestMkdirCreatesParentsForItsUser(t *testing.T) {
	dir := t.TempDir()
	routes := newUserRoutes(t, "app")
	fields := map[string]any{"path": dir + "/a/b/", "parents": true, "mode": "2750", "user": "other"}
	expect(t, post(t, routes, "/files/mkdir", fields), 200, `"path":"`+dir+`/a/b","type":"dir"`)
	expectOwner(t, dir+"/a", 7, 8, 0o755)
	expectOwner(t, dir+"/a/b", 7, 8, 0o2750)
	// An existing directory stays as it is.
	expect(t, post(t, routes, "/files/mkdir", map[string]any{"path": dir + "/a/b", "parents": true}), 200, `"mode":"2750"`)
	expectOwner(t, dir+"/a/b", 7, 8, 0o2750)
	expect(t, post(t, routes, "/files/mkdir", map[string]any{"path": dir + "/c"}), 200, `"uid":1000`)
}

func TestMkdirRefusesTakenNamesMissingParentsAndBadFields(t *testing.T) {
	dir := t.TempDir()
	routes := newUserRoutes(t, "")
	fill(t, dir, "f", "d/")
	for _, refused := range []struct {
		fields  map[string]any
		status  int
		mention string
	}{
		{map[string]any{"path": dir + "/d"}, 409, "already_exists"},
		{map[string]any{"path": dir + "/f", "parents": true}, 409, "already_exists"},
		{map[string]any{"path": dir + "/x/y"}, 404, "file_not_found"},
		{map[string]any{"path": dir + "/f/y", "parents": true}, 400, "ENOTDIR"},
		{map[string]any{"path": ""}, 400, "path: "},
		{map[string]any{"path": dir + "/n", "mode": "9"}, 400, "mode: "},
		{map[string]any{"path": dir + "/n", "user": "nobody-here"}, 400, "user: "},
		{map[string]any{"path": 1}, 400, "path must be of type"},
	} {
		expect(t, post(t, routes, "/files/mkdir", refused.fields), refused.status, refused.mention)
	}
	if exists(dir+"/n") || exists(dir+"/x") {
		t.Error("a refused request created something")
	}
}

func TestMoveReplacesOnlyWhenToldTo(t *testing.T) {
	dir := t.TempDir()
	routes := newRoutes(dir)
	fill(t, dir, "a", "b")
	fields := map[string]any{"from": "a", "to": dir + "/b"}
	expect(t, post(t, routes, "/files/move", fields), 409, "already_exists")
	if content(t, dir+"/b") != "b" {
		t.Fatal("replaced")
	}
	fields["overwrite"] = true
	expect(t, post(t, routes, "/files/move", fields), 200, `"path":"`+dir+`/b"`)
	if content(t, dir+"/b") != "a" || exists(dir+"/a") {
		t.Fatal("not moved")
	}
}

func TestMoveNamesTheFieldThatFails(t *testing.T) {
	dir := t.TempDir()
	routes := newRoutes(dir)
	fill(t, dir, "a", "d/", "d/x", "e/")
	expect(t, post(t, routes, "/files/move", map[string]any{"from": "none", "to": "b"}), 404, "from: ")
	expect(t, post(t, routes, "/files/move", map[string]any{"from": "a", "to": "none/b"}), 404, "to: ")
	expect(t, post(t, routes, "/files/move", map[string]any{"from": "d", "to": "d/x/y"}), 400, "file_error")
	expect(t, post(t, routes, "/files/move", map[string]any{"from": "e", "to": "d", "overwrite": true}), 400, "ENOTEMPTY")
	expect(t, post(t, routes, "/files/move", map[string]any{"from": "a"}), 400, "to: must not be empty")
	expect(t, post(t, routes, "/files/move", map[string]any{"from": "a", "to": "/proc/x"}), 400, "to: ")
}

func TestMoveMovesASymlinkItself(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "a")
	if err := os.Symlink("a", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	expect(t, post(t, newRoutes(dir), "/files/move", map[string]any{"from": "link", "to": "moved"}), 200, `"type":"symlink"`)
	if !exists(dir + "/a") {
		t.Fatal("the target moved")
	}
}

func TestRemoveRefusesFullDirectoriesUnlessRecursive(t *testing.T) {
	dir := t.TempDir()
	routes := newRoutes(dir)
	fill(t, dir, "d/", "d/e/", "d/e/f", "d/g", "empty/", "keep")
	if err := os.Symlink(dir+"/keep", dir+"/d/link"); err != nil {
		t.Fatal(err)
	}
	expect(t, post(t, routes, "/files/remove", map[string]any{"path": "empty"}), 200, "")
	expect(t, post(t, routes, "/files/remove", map[string]any{"path": "d"}), 400, "recursive: ")
	expect(t, post(t, routes, "/files/remove", map[string]any{"path": "d", "recursive": true}), 200, "")
	if exists(dir+"/d") || exists(dir+"/empty") || !exists(dir+"/keep") {
		t.Fatal("removed the wrong files")
	}
	expect(t, post(t, routes, "/files/remove", map[string]any{"path": "d", "recursive": true}), 404, "file_not_found")
	expect(t, post(t, routes, "/files/remove", map[string]any{"path": "/", "recursive": true}), 400, "path: is the root")
	expect(t, post(t, routes, "/files/remove", map[string]any{"path": "keep"}), 200, "")
}

func TestRemoveEmptiesDirectoriesOfManyFiles(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "d/")
	for i := range 3 * walkBatch {
		fill(t, dir, "d/"+strings.Repeat("x", 1+i%200)+string(rune('a'+i/200)))
	}
	expect(t, post(t, newRoutes(dir), "/files/remove", map[string]any{"path": "d", "recursive": true}), 200, "")
	if exists(dir + "/d") {
		t.Fatal("still there")
	}
}

func TestARemovalThatRunsOutOfTimeSaysSo(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "d/", "d/f")
	parent, err := openAt(unix.AT_FDCWD, dir, unix.O_PATH)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLogged(parent)
	ctx, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	err = removeTree(ctx, &node{directory: parent, name: "d", path: "d"}, true)
	if err == nil || !strings.Contains(err.Error(), "send the request again") {
		t.Fatal(err)
	}
}

func TestChmodChangesATreeAndNoTargetOfASymlink(t *testing.T) {
	dir := t.TempDir()
	routes := newRoutes(dir)
	fill(t, dir, "outside", "d/", "d/f")
	if err := errors.Join(os.Symlink(dir+"/outside", dir+"/d/link"), unix.Mkfifo(dir+"/d/pipe", 0o600)); err != nil {
		t.Fatal(err)
	}
	expect(t, post(t, routes, "/files/chmod", map[string]any{"path": "d", "mode": "0700"}), 200, `"mode":"0700"`)
	if modeOf(t, dir+"/d/f") != 0o600 {
		t.Error("changed without recursive")
	}
	expect(t, post(t, routes, "/files/chmod", map[string]any{"path": "d", "mode": "711", "recursive": true}), 200, `"mode":"0711"`)
	for path, want := range map[string]uint32{"/d": 0o711, "/d/f": 0o711, "/d/pipe": 0o600, "/outside": 0o600} {
		if got := modeOf(t, dir+path); got != want {
			t.Errorf("%s: %o, want %o", path, got, want)
		}
	}
	expect(t, post(t, routes, "/files/chmod", map[string]any{"path": "d"}), 400, "mode: is missing")
	expect(t, post(t, routes, "/files/chmod", map[string]any{"path": "d", "mode": "rwx"}), 400, "mode: ")
	expect(t, post(t, routes, "/files/chmod", map[string]any{"path": "none", "mode": "644"}), 404, "file_not_found")
}

func TestChownChangesATreeAndNoTargetOfASymlink(t *testing.T) {
	dir := t.TempDir()
	routes := newUserRoutes(t, "")
	fill(t, dir, "outside", "d/", "d/f")
	if err := os.Symlink(dir+"/outside", dir+"/d/link"); err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{"path": dir + "/d", "user": "app", "recursive": true}
	expect(t, post(t, routes, "/files/chown", fields), 200, `"uid":1000,"gid":1001,"user":"app"`)
	expectOwner(t, dir+"/d/f", 1000, 1001, 0o600)
	expectOwner(t, dir+"/outside", 0, 0, 0o600)
	expect(t, post(t, routes, "/files/chown", map[string]any{"path": dir + "/d"}), 400, "user: is missing")
	expect(t, post(t, routes, "/files/chown", map[string]any{"path": dir + "/d", "user": "x"}), 400, "user: ")
}

func TestARepeatedChangeOfATreeLeavesOutFilesThatAreDone(t *testing.T) {
	dir := t.TempDir()
	routes := newUserRoutes(t, "")
	fill(t, dir, "d/", "d/done", "d/open")
	must(t, os.Chmod(dir+"/d/done", 0o640), os.Chown(dir+"/d/done", 1000, 1001))
	var before, after unix.Stat_t
	must(t, unix.Stat(dir+"/d/done", &before))
	mode := map[string]any{"path": dir + "/d", "mode": "640", "recursive": true}
	expect(t, post(t, routes, "/files/chmod", mode), 200, "")
	owner := map[string]any{"path": dir + "/d", "user": "app", "recursive": true}
	expect(t, post(t, routes, "/files/chown", owner), 200, "")
	must(t, unix.Stat(dir+"/d/done", &after))
	if before.Ctim != after.Ctim {
		t.Error("changed again")
	}
	expectOwner(t, dir+"/d/open", 1000, 1001, 0o640)
}

func TestAFileThatIsGoneAfterItsChangeIsNoRefusal(t *testing.T) {
	answer := httptest.NewRecorder()
	err := New(nil, "/").answerChanged(answer, t.TempDir()+"/gone")
	if known := fault.From(err); known.Code != fault.FileError || !strings.Contains(known.Message, "the change was made") {
		t.Error(err)
	}
}
