package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coppice/blocks/testing/fakes3"
)

func TestARevertShowsAKeptVersionInTheSizeOfTheDisk(t *testing.T) {
	b := newBench(t, "directory")
	s := b.start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	s.must(`"op":"take","org":"o","disk":"d","runner":"r1","lease_ms":100`)
	drain := `"op":"drain","org":"o","disk":"d","runner":"r1","epoch":1,"overlay":"%s","source":"%[1]s"`
	runTool(t, "truncate", "-s", fmt.Sprint(diskBytes), filepath.Join(b.root, "model"))
	b.overlay("o1", "write -P 1 0 3M")
	drained := s.must(fmt.Sprintf(drain, "o1"))
	snapshot := s.must(`"op":"snapshot","org":"o","disk":"d","runner":"r1","epoch":1,"name":"s"`)
	runTool(t, "cp", "--sparse=always", filepath.Join(b.root, "model"), filepath.Join(b.root, "before"))
	b.overlay("o2", "write -P 2 1M 3M")
	s.must(fmt.Sprintf(drain, "o2"))
	s.must(fmt.Sprintf(`"op":"grow","org":"o","disk":"d","runner":"r1","epoch":1,"size_bytes":%d`, 2*diskBytes))
	revert := fmt.Sprintf(`"op":"revert","org":"o","disk":"d","runner":"r1","epoch":1,"version":%v`, snapshot["version"])
	reverted := s.must(revert)
	if reverted["size_bytes"] != float64(2*diskBytes) || reverted["drained_ms"] != drained["time_ms"] || reverted["kind"] != "revert" {
		t.Errorf("%v after %v", reverted, drained)
	}
	runTool(t, "mv", filepath.Join(b.root, "before"), filepath.Join(b.root, "model"))
	runTool(t, "truncate", "-s", fmt.Sprint(2*diskBytes), filepath.Join(b.root, "model"))
	b.overlay("o3", "write -P 3 2M 3M")
	s.must(fmt.Sprintf(drain, "o3"))
	s.must(`"op":"remove_snapshot","org":"o","disk":"d","version":4`)
	if _, code := s.ask(revert); code != "no_data" {
		t.Errorf("a revert to a removed snapshot: %s", code)
	}
	for range 4 {
		s.must(`"op":"collect","org":"o","upload_ms":1`)
	}
	b.compare(s.load("d", int(s.must(`"op":"stat","org":"o","disk":"d"`)["version"].(float64))))
}

func TestATakeTellsWhetherAnEarlierHolderIsLost(t *testing.T) {
	s := newBench(t, "directory").start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	take := func(runner string) (isRecovered, previousRunner any) {
		taken := s.must(fmt.Sprintf(`"op":"take","org":"o","disk":"d","runner":"%s","lease_ms":10`, runner))
		return taken["recovered"], taken["previous"].(map[string]any)["runner"]
	}
	for _, step := range []struct {
		runner      string
		isRecovered bool
		previous    string
	}{{"r1", false, ""}, {"r1", true, "r1"}, {"r2", true, "r1"}} {
		if isRecovered, previous := take(step.runner); isRecovered != step.isRecovered || previous != step.previous {
			t.Errorf("%+v: %v from %v", step, isRecovered, previous)
		}
	}
	s.must(`"op":"release","org":"o","disk":"d","runner":"r2","epoch":3`)
	if isRecovered, _ := take("r1"); isRecovered != false {
		t.Error("a disk that was released is recovered")
	}
}

func TestTheStatusShowsAReadThatWaits(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test-key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	store := fakes3.Start()
	defer store.Close()
	var isAway atomic.Bool
	store.Rule = func(*http.Request) fakes3.Fault {
		if isAway.Load() {
			return fakes3.Busy
		}
		return fakes3.None
	}
	b := newBench(t, store.Setting("p"))
	runTool(t, "truncate", "-s", fmt.Sprint(diskBytes), filepath.Join(b.root, "model"))
	s := b.start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	s.must(`"op":"take","org":"o","disk":"d","runner":"r1","lease_ms":100`)
	b.overlay("o1", "write -P 7 0 1M")
	s.must(`"op":"drain","org":"o","disk":"d","runner":"r1","epoch":1,"overlay":"o1","source":"o1"`)
	export := s.load("d", 3)
	isAway.Store(true)
	reader := exec.Command("qemu-io", "-r", "-f", "raw", "-c", "read -P 7 0 4k", "nbd+unix:///"+export+"?socket="+b.socketPath)
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	question := `"op":"status","org":"o","disk":"d"`
	status := s.must(question)
	for deadline := time.Now().Add(10 * time.Second); status["reads"] != 1.0 || status["oldest_read_ms"].(float64) < 100; status = s.must(question) {
		if time.Now().After(deadline) {
			t.Fatal(status)
		}
	}
	if status["store_error_ms"] == nil || !strings.Contains(status["store_error"].(string), "503") {
		t.Errorf("the failure of the store is missing: %v", status)
	}
	if other := s.must(`"op":"status","org":"o","disk":"e"`); other["reads"] != 0.0 {
		t.Errorf("another disk's reads: %v", other)
	}
	isAway.Store(false)
	if err := reader.Wait(); err != nil {
		t.Error(err)
	}
	// The reader may have its answer before the read is over here.
	for deadline := time.Now().Add(10 * time.Second); status["reads"] != 0.0 && time.Now().Before(deadline); {
		status = s.must(question)
	}
	if status["reads"] != 0.0 || status["store_ok_ms"].(float64) > status["store_error_ms"].(float64) {
		t.Errorf("afterwards: %v", status)
	}
}
