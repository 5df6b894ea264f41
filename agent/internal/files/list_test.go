package files

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
)

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

// listPage returns the names of one page and the cursor of the next one.
func listPage(t *testing.T, routes api.Router, directory string, query url.Values) (names []string, next string) {
	t.Helper()
	query.Set("path", directory)
	answer := httptest.NewRecorder()
	routes.ServeHTTP(answer, httptest.NewRequest("GET", "/list?"+query.Encode(), nil))
	var entries []entry
	if err := json.Unmarshal(answer.Body.Bytes(), &entries); err != nil || answer.Code != 200 {
		t.Fatal(answer.Code, answer.Body, err)
	}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names, answer.Header().Get(nextHeader)
}

func fillDirectory(t *testing.T, directory string, count int) (names []string) {
	t.Helper()
	for i := range count {
		name := fmt.Sprintf("f%d", i)
		if err := os.WriteFile(directory+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestPagesOfAListAreTheWholeDirectoryInOrder(t *testing.T) {
	dir := t.TempDir()
	want := fillDirectory(t, dir, 3*nameBatch+1)
	routes := newRoutes(dir)
	for _, limit := range []string{"700", "10000", ""} {
		var all []string
		for next := ""; ; {
			names, following := listPage(t, routes, dir, url.Values{"limit": {limit}, "after": {next}})
			all = append(all, names...)
			if next = following; next == "" {
				break
			}
		}
		if !slices.Equal(all, want) {
			t.Errorf("limit %q: %d names, want %d", limit, len(all), len(want))
		}
	}
}

func TestAPageThatHoldsTheRestHasNoCursor(t *testing.T) {
	dir := t.TempDir()
	fillDirectory(t, dir, 3)
	if names, next := listPage(t, newRoutes(dir), dir, url.Values{"limit": {"3"}}); len(names) != 3 || next != "" {
		t.Fatal(names, next)
	}
	if names, next := listPage(t, newRoutes(dir), dir, url.Values{"limit": {"2"}}); len(names) != 2 || next == "" {
		t.Fatal(names, next)
	}
}

func TestACursorHoldsForNamesThatAreNotUTF8(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"\xfe", "\xff", "z"} {
		if err := os.WriteFile(dir+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	after := base64.RawURLEncoding.EncodeToString([]byte("\xfe"))
	if names, _ := listPage(t, newRoutes(dir), dir, url.Values{"after": {after}}); len(names) != 1 {
		t.Fatal(names)
	}
}

func TestAPageOfLongEntriesEndsEarly(t *testing.T) {
	dir := t.TempDir()
	target := string(slices.Repeat([]byte("\x01"), unix.PathMax-1))
	want := maxPageBytes/(6*len(target)) + 10
	for i := range want {
		if err := os.Symlink(target, fmt.Sprintf("%s/%04d", dir, i)); err != nil {
			t.Fatal(err)
		}
	}
	names, next := listPage(t, newRoutes(dir), dir, url.Values{"limit": {"10000"}})
	if len(names) == 0 || len(names) >= want || next == "" {
		t.Fatal(len(names), next)
	}
	rest, next := listPage(t, newRoutes(dir), dir, url.Values{"limit": {"10000"}, "after": {next}})
	if len(names)+len(rest) != want || next != "" {
		t.Fatal(len(names), len(rest), next)
	}
}

func TestWrongLimitsAndCursorsAreRefused(t *testing.T) {
	for _, query := range []string{"limit=0", "limit=10001", "limit=x", "after=%20", "after=a"} {
		answer := httptest.NewRecorder()
		newRoutes("/").ServeHTTP(answer, httptest.NewRequest("GET", "/list?path=/&"+query, nil))
		expect(t, answer, 400, "invalid_request")
	}
}
