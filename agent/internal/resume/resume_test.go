package resume

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/rootfs"
)

func validBody() map[string]any {
	return map[string]any{
		"generation":    7,
		"entropy":       base64.StdEncoding.EncodeToString(make([]byte, entropyBytes)),
		"clock_unix_ns": "1763700000123456789",
		"hostname":      "run0123",
		"machine_id":    strings.Repeat("0f", 16),
		"network": map[string]any{
			"interface": "eth0", "address": "10.202.0.6/30", "gateway": "10.202.0.5", "resolver": "10.202.0.1", "mtu": 1500,
		},
		"env":        map[string]string{"PATH": "/bin"},
		"user":       "",
		"workdir":    "",
		"dns_search": []string{},
		"unknown":    "is ignored",
	}
}

func encode(t *testing.T, body map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParseReadsAWholeRequest(t *testing.T) {
	r, err := parse(encode(t, validBody()), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Generation != 7 || r.Time.UnixNs != 1763700000123456789 || r.Network.Address.String() != "10.202.0.6/30" {
		t.Fatalf("%+v", r)
	}
	if r.Settings.Workdir != "/workspace" || r.Settings.Env["PATH"] != "/bin" {
		t.Fatalf("%+v", r.Settings)
	}
}

func TestParseTakesNullForNoNetwork(t *testing.T) {
	body := validBody()
	body["network"] = nil
	if r, err := parse(encode(t, body), time.Time{}); err != nil || r.Network != nil {
		t.Fatal(r, err)
	}
}

func TestParseNamesTheFieldThatIsWrong(t *testing.T) {
	bad := map[string][]any{
		"generation":         {0, -1, "7", 1.5},
		"entropy":            {"", "!", "AAAA", 5},
		"clock_monotonic_ns": {"-5", "x", 17},
		"clock_unix_ns":      {"", "-5", "x", "99999999999999999999", 17},
		"hostname":           {"", "a b", "a\nb", strings.Repeat("a", 65)},
		"machine_id":         {"", strings.Repeat("0F", 16), "0f"},
		"workdir":            {"relative", "/a\x00b"},
		"env":                {map[string]string{"": "x"}, map[string]string{"A": "\x00"}, []string{"A=b"}},
		"dns_search":         {[]string{"a\nnameserver 1.1.1.1"}, []string{""}, make([]string, 7)},
		"workspace":          {5, map[string]any{}, map[string]any{"size_bytes": -512}, map[string]any{"size_bytes": 1<<20 + 1}},
		"network":            {map[string]any{}, map[string]any{"interface": "../x"}, 5},
	}
	for field, values := range bad {
		for _, value := range values {
			body := validBody()
			body[field] = value
			if _, err := parse(encode(t, body), time.Time{}); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s = %v: %v", field, value, err)
			}
		}
	}
}

// recorder records the steps that were done, and fails at one step.
type recorder struct {
	done   []string
	failAt string
}

func (r *recorder) step(name string) Step {
	return Step{name, func(Request) error {
		if name == r.failAt {
			return errors.New("injected")
		}
		r.done = append(r.done, name)
		return nil
	}}
}

func post(t *testing.T, s *Service, generation int) *httptest.ResponseRecorder {
	t.Helper()
	body := validBody()
	body["generation"] = generation
	answer := httptest.NewRecorder()
	request := httptest.NewRequest("POST", "/resume", strings.NewReader(string(encode(t, body))))
	api.Router{"POST /resume": s.Resume}.ServeHTTP(answer, request)
	return answer
}

func TestResumeIsOrderedAndTheSameGenerationDoesNothing(t *testing.T) {
	r := &recorder{}
	s := New([]Step{r.step("a"), r.step("b"), r.step("c")})
	for range 2 {
		if answer := post(t, s, 7); answer.Code != 200 || answer.Body.String() != `{"protocol":1,"generation":7}` {
			t.Fatal(answer.Code, answer.Body)
		}
	}
	if !slices.Equal(r.done, []string{"a", "b", "c"}) {
		t.Fatal(r.done)
	}
	if answer := post(t, s, 6); answer.Code != 409 {
		t.Fatal("an older generation: ", answer.Code, answer.Body)
	}
	if answer := post(t, s, 8); answer.Code != 200 || len(r.done) != 6 {
		t.Fatal(answer.Code, r.done)
	}
}

func TestAResumeThatFailedNamesTheStepAndMayBeRepeated(t *testing.T) {
	r := &recorder{failAt: "b"}
	s := New([]Step{r.step("a"), r.step("b"), r.step("c")})
	if answer := post(t, s, 7); answer.Code != 500 || !strings.Contains(answer.Body.String(), "resume, b: injected") {
		t.Fatal(answer.Code, answer.Body)
	}
	r.failAt = ""
	if answer := post(t, s, 7); answer.Code != 200 || !slices.Equal(r.done, []string{"a", "a", "b", "c"}) {
		t.Fatal(answer.Code, r.done)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestIdentityNeverWritesThroughASymlinkOfTheImage(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.Mkdir(root+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hosts", "hostname", "machine-id", "resolv.conf"} {
		target := filepath.Join(outside, name)
		if err := errors.Join(os.WriteFile(target, []byte("keep"), 0o600), os.Symlink(target, root+"/etc/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := parse(encode(t, validBody()), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	r.DNSSearch = []string{"example"}
	names := NewIdentity(root)
	if err := errors.Join(names.apply(r), names.writeResolver(r)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"hosts":       hostsHead + "10.202.0.6\trun0123\n",
		"hostname":    "run0123\n",
		"machine-id":  strings.Repeat("0f", 16) + "\n",
		"resolv.conf": "nameserver 10.202.0.1\nsearch example\n",
	} {
		if got := read(t, root+"/etc/"+name); got != want {
			t.Errorf("%s: %q", name, got)
		}
		if read(t, filepath.Join(outside, name)) != "keep" {
			t.Errorf("%s was written through", name)
		}
	}
}

func TestALaterResumeKeepsWhatTheUserAddedToHosts(t *testing.T) {
	root := t.TempDir()
	names := NewIdentity(root)
	r, err := parse(encode(t, validBody()), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := names.apply(r); err != nil {
		t.Fatal(err)
	}
	edited := read(t, root+"/etc/hosts") + "1.2.3.4 mine\n"
	if err := os.WriteFile(root+"/etc/hosts", []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Hostname = "fork"
	if err := names.apply(r); err != nil {
		t.Fatal(err)
	}
	if got := read(t, root+"/etc/hosts"); got != hostsHead+"10.202.0.6\tfork\n1.2.3.4 mine\n" {
		t.Fatalf("%q", got)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		t.Fatal(err)
	}
	return info.Ino
}

func TestAResumeOverwritesWhatWasPrepared(t *testing.T) {
	root := t.TempDir()
	names := NewIdentity(root)
	names.Prepare()
	r, err := parse(encode(t, validBody()), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		hostsFile:      hostsHead + "10.202.0.6\trun0123\n",
		hostnameFile:   "run0123\n",
		machineIDFile:  strings.Repeat("0f", 16) + "\n",
		resolverFile:   "nameserver 10.202.0.1\n",
		generationFile: "7\n",
	}
	before := map[string]uint64{}
	for name := range want {
		before[name] = inode(t, filepath.Join(root, name))
	}
	if err := errors.Join(names.apply(r), names.writeResolver(r), names.writeGeneration(r)); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		path := filepath.Join(root, name)
		if got := read(t, path); got != content {
			t.Errorf("%s: %q", name, got)
		}
		if inode(t, path) != before[name] {
			t.Errorf("%s is not the same file", name)
		}
	}
}

func TestAFileThatIsNotItsOwnAnyMoreIsReplaced(t *testing.T) {
	for what, change := range map[string]func(path, other string) error{
		"it has another name": func(path, other string) error { return os.Link(path, other) },
		"it is a symlink":     func(path, other string) error { return errors.Join(os.Rename(path, other), os.Symlink(other, path)) },
		"it is gone":          func(path, other string) error { return os.Rename(path, other) },
		"it is a pipe": func(path, other string) error {
			return errors.Join(os.Rename(path, other), unix.Mkfifo(path, 0o644))
		},
	} {
		root := t.TempDir()
		path, other := filepath.Join(root, hostnameFile), filepath.Join(root, "other")
		names := NewIdentity(root)
		names.Prepare()
		if err := errors.Join(change(path, other), names.write(hostnameFile, "mine\n")); err != nil {
			t.Fatal(what, err)
		}
		if got := read(t, path); got != "mine\n" {
			t.Errorf("%s: %q", what, got)
		}
		if got := read(t, other); got != "-\n" {
			t.Errorf("%s: the other file holds %q", what, got)
		}
	}
}

func TestWhatIsMountedOnAFileIsLeftAlone(t *testing.T) {
	root := t.TempDir()
	path, other := filepath.Join(root, resolverFile), filepath.Join(root, "other")
	names := NewIdentity(root)
	names.Prepare()
	if err := os.WriteFile(other, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
	if err := names.write(resolverFile, "mine\n"); !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	if got := read(t, other); got != "keep" {
		t.Errorf("%q", got)
	}
}

func TestAnImageInWhichFilesCannotBePreparedHasThemMadeByTheResume(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("nowhere", root+"/etc"); err != nil {
		t.Fatal(err)
	}
	names := NewIdentity(root)
	names.Prepare()
	if err := errors.Join(os.Remove(root+"/etc"), os.Mkdir(root+"/etc", 0o755), names.write(hostnameFile, "mine\n")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(root, hostnameFile)); got != "mine\n" {
		t.Fatalf("%q", got)
	}
}

func TestTheLastStepsOfAResumeAreInOrder(t *testing.T) {
	var names []string
	for _, step := range Steps(Options{Identity: NewIdentity(t.TempDir())}) {
		names = append(names, step.Name)
	}
	want := []string{
		"freezer", "entropy", "clock", "root", "disk", "directories", "workspace", "hostname", "identity", "network",
		"resolver", "connections", "generation", "host key", "environment", "thaw",
	}
	if !slices.Equal(names, want) {
		t.Fatal(names)
	}
}

func TestADiskIsGrownOnlyWhenItsSizeIsTold(t *testing.T) {
	if err := growDisk(&rootfs.Root{}, Request{}); err != nil {
		t.Fatal(err)
	}
	if err := growDisk(&rootfs.Root{}, Request{DiskBytes: 100 << 20}); err == nil {
		t.Fatal("a root without a disk was grown")
	}
}

func TestDirectoriesAreLookedAtOnceForEachUserAndPlace(t *testing.T) {
	root := t.TempDir()
	places := &directories{root: root}
	ensure := func(workdir string) {
		t.Helper()
		if err := places.ensure(Request{Settings: guest.Settings{Workdir: workdir}}); err != nil {
			t.Fatal(err)
		}
	}
	ensure("/srv")
	if err := os.Remove(root + "/srv"); err != nil {
		t.Fatal(err)
	}
	ensure("/srv")
	if _, err := os.Lstat(root + "/srv"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory that the user removed exists again", err)
	}
	ensure("/other")
	if _, err := os.Lstat(root + "/other"); err != nil {
		t.Error(err)
	}
}

func TestOnlyAGuestThatHasBeenInUseMayLackAFile(t *testing.T) {
	fail := forgiving("resolver", func(Request) error { return errors.New("injected") })
	if err := fail(Request{}); err == nil {
		t.Error("a new guest may lack a file")
	}
	program := exec.Command("sleep", "100")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	if err := fail(Request{}); err != nil {
		t.Error(err)
	}
	_ = program.Process.Kill()
	_ = program.Wait()
}

func FuzzParse(f *testing.F) {
	text, err := json.Marshal(validBody())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"network":{"address":"::1/64"}}`))
	withDisk := validBody()
	withDisk["workspace"] = map[string]any{"size_bytes": 1 << 30}
	if text, err = json.Marshal(withDisk); err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parse(body, time.Time{})
		if err != nil {
			return
		}
		if len(r.Entropy) != entropyBytes || r.Generation == 0 || strings.ContainsAny(r.Hostname, "\n\x00/") || r.Time.UnixNs <= 0 {
			t.Fatalf("%+v was accepted", r)
		}
		if r.Workspace != nil && r.Workspace.Validate("") != nil {
			t.Fatalf("a disk of %d bytes was accepted", r.Workspace.SizeBytes)
		}
	})
}

func TestADirectoryOfTheImageInThePlaceOfAFileIsReplaced(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(root+"/etc/hostname/below", 0o755), os.MkdirAll(root+"/etc/hostname.coppice/below", 0o755),
		replaceFile(root, "etc/hostname", "name\n"),
	); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(root + "/etc/hostname"); err != nil || string(content) != "name\n" {
		t.Fatal(string(content), err)
	}
}
