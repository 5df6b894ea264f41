package files

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
)

var packedAt = time.Date(2026, 11, 21, 6, 30, 0, 0, time.UTC)

// pack makes a tar. Entries without a type are files whose content is their name.
func pack(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, entry := range entries {
		if entry.Typeflag == 0 {
			entry.Typeflag, entry.Size = tar.TypeReg, int64(len(entry.Name))
		}
		if entry.Mode == 0 {
			entry.Mode = 0o640
		}
		entry.ModTime = packedAt
		if err := w.WriteHeader(&entry); err != nil {
			t.Fatal(err)
		}
		if entry.Size > 0 {
			if _, err := io.WriteString(w, entry.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unpack(routes api.Router, dir string, body io.Reader, more url.Values) *httptest.ResponseRecorder {
	query := url.Values{"path": {dir}}
	for name, values := range more {
		query[name] = values
	}
	answer := httptest.NewRecorder()
	routes.ServeHTTP(answer, httptest.NewRequest("PUT", "/files/archive?"+query.Encode(), body))
	return answer
}

func listArchive(t *testing.T, content io.Reader) map[string]*tar.Header {
	t.Helper()
	found := map[string]*tar.Header{}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = header
	}
}

func TestAnArchiveHasFilesDirectoriesAndSymlinksOnly(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "d/", "d/f", "new\nline", "\xff")
	long := strings.Repeat("n", 200)
	fill(t, dir, "d/"+long)
	err := errors.Join(os.Symlink("/etc/passwd", dir+"/link"), unix.Mkfifo(dir+"/pipe", 0o600), os.Chmod(dir+"/d/f", 0o750))
	if err != nil {
		t.Fatal(err)
	}
	answer := do(newRoutes("/"), "GET", "/files/archive", dir, nil)
	expect(t, answer, 200, "")
	found := listArchive(t, answer.Body)
	for name, kind := range map[string]byte{
		"d/": tar.TypeDir, "d/f": tar.TypeReg, "d/" + long: tar.TypeReg, "new\nline": tar.TypeReg, "\xff": tar.TypeReg,
		"link": tar.TypeSymlink,
	} {
		if header := found[name]; header == nil || header.Typeflag != kind {
			t.Errorf("%q: %+v", name, header)
		}
		delete(found, name)
	}
	if len(found) > 0 {
		t.Error("more entries:", found)
	}
}

func TestAnArchiveSurvivesTheRoundTrip(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	fill(t, from, "d/", "d/e/", "d/f")
	if err := errors.Join(os.WriteFile(from+"/large", bytes.Repeat([]byte("x"), 3*copyBytes+1), 0o755), os.Symlink("d/f", from+"/l")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(from+"/d/f", packedAt, packedAt); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"tar", "tar.gz"} {
		routes := newUserRoutes(t, "app")
		answer := httptest.NewRecorder()
		routes.ServeHTTP(answer, httptest.NewRequest("GET", "/files/archive?format="+form+"&path="+url.QueryEscape(from), nil))
		expect(t, answer, 200, "")
		into := to + "/" + form + "/new"
		expect(t, unpack(routes, into, answer.Body, url.Values{"format": {form}}), 200, `"entries":5,"size":786436`)
		if content(t, into+"/d/f") != "d/f" || content(t, into+"/large") != strings.Repeat("x", 3*copyBytes+1) || content(t, into+"/l") != "d/f" {
			t.Error(form, "differs")
		}
		expectOwner(t, into, 1000, 1001, 0o755)
		expectOwner(t, into+"/d/e", 1000, 1001, 0o755)
		expectOwner(t, into+"/large", 1000, 1001, 0o755)
		expectOwner(t, into+"/l", 1000, 1001, 0o777)
		if info, err := os.Stat(into + "/d/f"); err != nil || !info.ModTime().Equal(packedAt) {
			t.Error(info, err)
		}
	}
}

func TestAnArchiveOfNoDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "f")
	expect(t, do(newRoutes(dir), "GET", "/files/archive", "f", nil), 400, "is not a directory")
	expect(t, do(newRoutes(dir), "GET", "/files/archive", "none", nil), 404, "file_not_found")
	answer := httptest.NewRecorder()
	newRoutes(dir).ServeHTTP(answer, httptest.NewRequest("GET", "/files/archive?path=.&format=zip", nil))
	expect(t, answer, 400, "format: ")
}

func TestAnArchiveLeavesOutOtherFileSystems(t *testing.T) {
	var out bytes.Buffer
	top, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer closeLogged(top)
	// Only the names at the top: the rest of this machine is too large.
	var stat unix.Stat_t
	if err := unix.Fstat(int(top.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	a := &archive{tar: tar.NewWriter(&out), device: uint64(stat.Dev), buffer: make([]byte, copyBytes)}
	n := &node{directory: top, name: "proc", path: "proc"}
	if err := unix.Fstatat(n.at(), n.name, &n.stat, 0); err != nil {
		t.Fatal(err)
	}
	if descend, err := a.add(n); descend || err != nil {
		t.Fatal(descend, err)
	}
}

func TestAFileThatShrinksBreaksTheArchiveOff(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", make([]byte, 8*copyBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	top, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLogged(top)
	var written int
	err = writeArchive(context.Background(), writerFunc(func(p []byte) (int, error) {
		if written += len(p); written > copyBytes {
			return len(p), os.Truncate(dir+"/f", 0)
		}
		return len(p), nil
	}), top, plainTar)
	if err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Fatal(err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestUnpackingNeverLeavesTheDirectory(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"parent":           {{Name: "../out"}},
		"hidden parent":    {{Name: "a/../../out"}},
		"harmless parent":  {{Name: "a/../b"}},
		"absolute":         {{Name: "/out"}},
		"symlink":          {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/out"}},
		"absolute symlink": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/"}, {Name: "l/out"}},
		"two symlinks": {
			{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755},
			{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: ".."},
			{Name: "m", Typeflag: tar.TypeSymlink, Linkname: "d/l/.."},
			{Name: "m/out"},
		},
		"directory through a symlink": {
			{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/out/", Typeflag: tar.TypeDir, Mode: 0o755},
		},
		"hard link":                   {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}},
		"absolute hard link":          {{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"hard link through a symlink": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "l/secret"}},
		"device":                      {{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
	} {
		dir := t.TempDir()
		fill(t, dir, "secret", "in/")
		answer := unpack(newRoutes("/"), dir+"/in", bytes.NewReader(pack(t, entries...)), nil)
		if answer.Code != 400 || !strings.Contains(answer.Body.String(), "body: ") {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
		if exists(dir+"/out") || exists(dir+"/in/h") || exists(dir+"/in/null") {
			t.Errorf("%s: written outside", name)
		}
	}
}

func TestUnpackingFollowsSymlinksThatStayInside(t *testing.T) {
	dir := t.TempDir()
	archive := pack(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "d"}, tar.Header{Name: "l/f"})
	// The second time, everything exists.
	for range 2 {
		expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(archive), nil), 200, `"entries":3`)
	}
	if content(t, dir+"/d/f") != "l/f" {
		t.Fatal("written elsewhere")
	}
}

func TestUnpackingReplacesFilesAndKeepsDirectories(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "d/", "d/f", "keep")
	if err := os.Chmod(dir+"/d", 0o700); err != nil {
		t.Fatal(err)
	}
	archive := pack(t, tar.Header{Name: "./d/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "./d/f", Mode: 0o4755},
		tar.Header{Name: "d/h", Typeflag: tar.TypeLink, Linkname: "d/f"}, tar.Header{Name: "d/h", Typeflag: tar.TypeLink, Linkname: "d/f"})
	expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(archive), nil), 200, `"entries":4`)
	if content(t, dir+"/d/f") != "./d/f" || content(t, dir+"/d/h") != "./d/f" || content(t, dir+"/keep") != "keep" {
		t.Error("wrong contents")
	}
	// No set-id bits: the owner of the file did not give them.
	if modeOf(t, dir+"/d") != 0o700 || modeOf(t, dir+"/d/f") != 0o755 {
		t.Errorf("%o %o", modeOf(t, dir+"/d"), modeOf(t, dir+"/d/f"))
	}
	names, err := os.ReadDir(dir + "/d")
	if err != nil || len(names) != 2 {
		t.Error("temporary files are left:", names, err)
	}
}

func TestUnpackingReplacesASymlinkByAFile(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fill(t, outside, "target")
	must(t, os.Symlink(outside+"/target", dir+"/f"), os.Symlink("nowhere", dir+"/g"))
	archive := pack(t, tar.Header{Name: "f"}, tar.Header{Name: "g"})
	expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(archive), nil), 200, `"entries":2`)
	for _, name := range []string{"f", "g"} {
		info, err := os.Lstat(dir + "/" + name)
		if err != nil || !info.Mode().IsRegular() || !info.ModTime().Equal(packedAt) || info.Mode().Perm() != 0o640 {
			t.Error(info, err)
		}
	}
	if content(t, outside+"/target") != "target" {
		t.Error("the target was written")
	}
}

func TestUnpackingReplacesNoDirectoryByAFile(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, "d/", "f")
	expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(pack(t, tar.Header{Name: "d"})), nil), 400, "not a regular file")
	over := pack(t, tar.Header{Name: "f/", Typeflag: tar.TypeDir, Mode: 0o755})
	expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(over), nil), 400, "is not a directory")
}

func TestABrokenArchiveSaysWhatWasWritten(t *testing.T) {
	dir := t.TempDir()
	whole := pack(t, tar.Header{Name: "a"}, tar.Header{Name: "b"})
	mention := "; 1 entries with 1 bytes were written before"
	broken := io.MultiReader(bytes.NewReader(whole[:1024]), brokenReader{})
	expect(t, unpack(newRoutes("/"), dir, broken, nil), 400, "body: ended early: broken"+mention)
	expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(whole[:1200]), nil), 400, mention)
	expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(nil), nil), 400, "body: is empty")
	expect(t, unpack(newRoutes("/"), dir, strings.NewReader(strings.Repeat("no archive", 200)), nil), 400, "body: is not a whole archive")
	expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(whole), url.Values{"format": {"tar.gz"}}), 400, "body: is not a whole archive")
	expect(t, unpack(newRoutes("/"), dir, bytes.NewReader(whole), url.Values{"user": {"none"}}), 400, "user: ")
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestAGzippedArchiveThatIsCutOffIsNotWhole(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(pack(t, tar.Header{Name: "a"}))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	cut := slices.Clone(packed.Bytes()[:packed.Len()-4])
	more := url.Values{"format": {"tar.gz"}}
	expect(t, unpack(newRoutes("/"), t.TempDir(), bytes.NewReader(cut), more), 400, "body: is not a whole archive")
	expect(t, unpack(newRoutes("/"), t.TempDir(), &packed, more), 200, `"entries":1,"size":1`)
}
