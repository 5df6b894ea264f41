package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coppice/blocks/internal/objects"
	"coppice/blocks/testing/fakes3"
	"coppice/blocks/testing/memory"
	"coppice/blocks/testing/s3server"
)

func open(t *testing.T, setting string) objects.Store {
	t.Helper()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" {
		t.Setenv("AWS_ACCESS_KEY_ID", "key")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	}
	store, err := objects.Open(context.Background(), setting, filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func openFake(t *testing.T, rule func(*http.Request) fakes3.Fault) objects.Store {
	server := fakes3.Start()
	server.Rule = rule
	t.Cleanup(server.Close)
	return open(t, server.Setting("some/prefix"))
}

func TestEveryStoreKeepsTheContract(t *testing.T) {
	stores := map[string]func(t *testing.T) objects.Store{
		"directory": func(t *testing.T) objects.Store { return open(t, "directory") },
		"memory":    func(*testing.T) objects.Store { return memory.New() },
		"fake S3":   func(t *testing.T) objects.Store { return openFake(t, nil) },
		"real S3":   func(t *testing.T) objects.Store { return open(t, s3server.Start(t)) },
		"unreliable S3": func(t *testing.T) objects.Store {
			var count atomic.Int64
			return openFake(t, func(*http.Request) fakes3.Fault {
				return []fakes3.Fault{fakes3.Busy, fakes3.None, fakes3.LoseAnswer, fakes3.None}[count.Add(1)%4]
			})
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) { checkContract(t, open(t)) })
	}
}

func checkContract(t *testing.T, store objects.Store) {
	ctx := context.Background()
	expect := func(holds bool, what string) {
		t.Helper()
		if !holds {
			t.Error(what)
		}
	}
	isWritten, err := store.PutIfAbsent(ctx, "a/b/1", []byte("first"))
	expect(isWritten && err == nil, "an absent object is created")
	isWritten, err = store.PutIfAbsent(ctx, "a/b/1", []byte("second"))
	expect(!isWritten && err == nil, "an existing object is not replaced")
	content, err := store.Get(ctx, "a/b/1", objects.Range{})
	expect(string(content) == "first" && err == nil, "the first content stays")
	expect(store.Put(ctx, "a/b/1", []byte("0123456789")) == nil, "put replaces")
	for _, c := range []struct {
		part objects.Range
		want string
	}{{objects.Range{Offset: 3, Length: 3}, "345"}, {objects.Range{Offset: 7}, "789"}, {objects.Range{Offset: 8, Length: 100}, "89"}} {
		content, err = store.Get(ctx, "a/b/1", c.part)
		expect(string(content) == c.want && err == nil, fmt.Sprintf("range %v gave %q, %v", c.part, content, err))
	}
	for _, key := range []string{"a/b/2", "a/b-c/1", "a/c", "b/1"} {
		expect(store.Put(ctx, key, []byte(key)) == nil, "put "+key)
	}
	expect(list(t, store, "a/", "") == "a/b-c/1 a/b/1 a/b/2 a/c", "a list is sorted: "+list(t, store, "a/", ""))
	expect(list(t, store, "", "") == "a/b-c/1 a/b/1 a/b/2 a/c b/1", "an empty prefix lists all")
	expect(list(t, store, "a/b", "a/b/1") == "a/b/2", "a list begins after a key")
	expect(list(t, store, "none/", "") == "", "a prefix without objects")
	for range 2 {
		expect(store.Delete(ctx, "a/b/1") == nil, "deleting, also twice, is no error")
	}
	_, err = store.Get(ctx, "a/b/1", objects.Range{})
	expect(errors.Is(err, objects.ErrNotFound), fmt.Sprintf("a deleted object is not found: %v", err))
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/.b", "a b", strings.Repeat("x", 201), strings.Repeat("a/", 500) + "a"} {
		expect(store.Put(ctx, key, nil) != nil, fmt.Sprintf("key %.20q is refused", key))
	}
}

func list(t *testing.T, store objects.Store, prefix, after string) string {
	t.Helper()
	var keys []string
	for info, err := range store.List(context.Background(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return strings.Join(keys, " ")
}

func TestOneOfManyCreatorsWins(t *testing.T) {
	for name, store := range map[string]objects.Store{"directory": open(t, "directory"), "S3": openFake(t, nil)} {
		won := make(chan bool)
		for i := range 8 {
			go func() {
				isWritten, err := store.PutIfAbsent(context.Background(), "race/1", []byte{byte(i)})
				won <- isWritten && err == nil
			}()
		}
		count := 0
		for range 8 {
			if <-won {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%s: %d creators won", name, count)
		}
	}
}

func TestALostAnswerOfACreateIsResolved(t *testing.T) {
	var puts atomic.Int64
	store := openFake(t, func(r *http.Request) fakes3.Fault {
		if r.Method == http.MethodPut && puts.Add(1) == 1 {
			return fakes3.LoseAnswer
		}
		return fakes3.None
	})
	isWritten, err := store.PutIfAbsent(context.Background(), "a", []byte("mine"))
	if !isWritten || err != nil || puts.Load() != 2 {
		t.Errorf("got %v, %v after %d puts", isWritten, err, puts.Load())
	}
}

func TestAnotherWritersObjectIsNotTakenForOnesOwn(t *testing.T) {
	var puts atomic.Int64
	store := openFake(t, func(r *http.Request) fakes3.Fault {
		if r.Method == http.MethodPut && puts.Add(1) == 2 {
			return fakes3.Busy
		}
		return fakes3.None
	})
	ctx := context.Background()
	first, _ := store.PutIfAbsent(ctx, "a", []byte("other"))
	second, err := store.PutIfAbsent(ctx, "a", []byte("mine"))
	if !first || second || err != nil {
		t.Errorf("got %v, %v, %v", first, second, err)
	}
}

func TestABrokenBodyIsReadAgain(t *testing.T) {
	var gets atomic.Int64
	store := openFake(t, func(r *http.Request) fakes3.Fault {
		if r.Method == http.MethodGet && gets.Add(1) < 3 {
			return fakes3.BreakBody
		}
		return fakes3.None
	})
	ctx, content := context.Background(), bytes.Repeat([]byte("x"), 100_000)
	if err := store.Put(ctx, "a", content); err != nil {
		t.Fatal(err)
	}
	found, err := store.Get(ctx, "a", objects.Range{})
	if err != nil || !bytes.Equal(found, content) || gets.Load() != 3 {
		t.Errorf("%d bytes, %v, %d gets", len(found), err, gets.Load())
	}
}

func TestAnOutageEndsWithTheDeadlineAndNamesTheCause(t *testing.T) {
	server := fakes3.Start()
	store := open(t, server.Setting(""))
	server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := store.Get(ctx, "a", objects.Range{})
	if !errors.Is(err, objects.ErrUnavailable) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

func TestTheDirectoryStoreSurvivesAnEmptiedIncomingDirectory(t *testing.T) {
	root := filepath.Join(t.TempDir(), "objects")
	store, err := objects.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				_ = os.RemoveAll(filepath.Join(root, ".incoming"))
			}
		}
	}()
	for i := range 200 {
		if err := store.Put(context.Background(), fmt.Sprintf("d/%d", i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "d"))
	if err != nil || len(entries) != 200 {
		t.Errorf("%d objects, %v", len(entries), err)
	}
	info, _ := os.Stat(filepath.Join(root, "d", "1"))
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestLocations(t *testing.T) {
	valid := map[string]objects.Location{
		"s3://my-bucket?region=eu-central-1": {Bucket: "my-bucket", Region: "eu-central-1"},
		"s3://b.1-x/some/prefix/?endpoint=https://s3.example.com:9000/&ca=/etc/ca.pem&path_style=false": {
			Bucket: "b.1-x", Prefix: "some/prefix", Endpoint: "https://s3.example.com:9000", Region: "us-east-1", CAPath: "/etc/ca.pem"},
		"s3://bucket?endpoint=http://127.0.0.1:1": {
			Bucket: "bucket", Endpoint: "http://127.0.0.1:1", Region: "us-east-1", IsPathStyle: true},
	}
	for text, want := range valid {
		if got, err := objects.ParseLocation(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	invalid := []string{"", "https://bucket", "s3://", "s3://UPPER?region=us", "s3://bucket", "s3://bucket?region=eu&region=us",
		"s3://bucket?region=eu&hunter2=1", "s3://bucket?region=eu&path_style=yes", "s3://bucket?region=eu&ca=ca.pem",
		"s3://bucket/a//b?region=eu", "s3://bucket?endpoint=http://10.0.0.1", "s3://bucket?endpoint=https://h/path",
		"s3://KEY:hunter2@bucket?region=eu", "s3://bucket?endpoint=https://KEY:hunter2@s3.example.com"}
	for _, text := range invalid {
		_, err := objects.ParseLocation(text)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
	names := []string{"a", "A.b_c-1", "-x"}
	if slices.ContainsFunc(names, func(name string) bool { return !objects.IsName(name) }) {
		t.Error("a valid name is refused")
	}
}
