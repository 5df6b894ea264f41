package save

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"coppice/capture/internal/ramfile"
	"coppice/capture/internal/vmmemory"
	"coppice/capture/testing/mapper"
)

const benchBytes = 1 << 30

var benchPatterns = []struct {
	name  string
	dirty func(*testing.B, *mapper.Process)
}{
	{"one run of 256 MiB", func(b *testing.B, vm *mapper.Process) { vm.Fill(b, 300*mib, 256*mib, 5) }},
	{"every other page of 256 MiB", func(b *testing.B, vm *mapper.Process) { vm.Dirty(b, 300*mib, 256*mib, 2) }},
	{"2000 runs of up to 256 KiB", func(b *testing.B, vm *mapper.Process) {
		state := uint64(12345)
		for range 2000 {
			state = state*6364136223846793005 + 1442695040888963407
			vm.Fill(b, int64(state>>33%(1000*mib/vmmemory.PageSize))*vmmemory.PageSize, int64(1+state>>20%64)*vmmemory.PageSize, 9)
		}
	}},
	{"64 pages", func(b *testing.B, vm *mapper.Process) { vm.Fill(b, 300*mib, 64*vmmemory.PageSize, 5) }},
}

// BenchmarkPass measures the second pass, for which a VM is stopped, and compares it with writing as many bytes to the
// same places of such a file. COPPICE_BENCH_DIR selects the file system.
func BenchmarkPass(b *testing.B) {
	directory, err := os.MkdirTemp(os.Getenv("COPPICE_BENCH_DIR"), "capture")
	must(b, err)
	defer os.RemoveAll(directory)
	base, err := os.Create(filepath.Join(directory, "base"))
	must(b, err)
	must(b, base.Truncate(benchBytes))
	for _, offset := range []int64{0, 128 * mib} {
		_, err := base.WriteAt(filled(64*mib, 7), offset)
		must(b, err)
	}
	for _, pattern := range benchPatterns {
		vm := mapper.Start(b, base.Name(), benchBytes)
		pattern.dirty(b, vm)
		memory, err := vmmemory.Open(vm.Pid, base, benchBytes)
		must(b, err)
		b.Run(pattern.name, func(b *testing.B) { benchPass(b, directory, base, memory) })
		memory.Close()
		vm.End()
	}
}

func benchPass(b *testing.B, directory string, base *os.File, memory *vmmemory.Memory) {
	var first, second, plain time.Duration
	for range b.N {
		transfer, end := benchTransfer(b, directory, base, memory)
		first += timed(b, transfer)
		second += timed(b, transfer)
		changed := transfer.changed
		end()
		other, end := benchTransfer(b, directory, base, memory)
		plain += benchPlainWrite(b, other.file, changed)
		end()
	}
	perRun := func(sum time.Duration) float64 { return float64(sum.Microseconds()) / 1000 / float64(b.N) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perRun(first), "ms-first")
	b.ReportMetric(perRun(second), "ms-stopped")
	b.ReportMetric(perRun(plain), "ms-plain-write")
	b.ReportMetric(float64(second)/float64(plain), "stopped/plain")
}

func benchTransfer(b *testing.B, directory string, base *os.File, memory *vmmemory.Memory) (*transfer, func()) {
	file, err := os.OpenFile(filepath.Join(directory, "target"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	must(b, err)
	data := newPageSet(benchBytes)
	_, err = ramfile.CopyBase(file, base, benchBytes, data.addExtent)
	must(b, err)
	transfer := newTransfer(memory, file, benchBytes, data)
	return transfer, func() {
		transfer.close()
		file.Close()
		must(b, os.Remove(file.Name()))
	}
}

func timed(b *testing.B, transfer *transfer) time.Duration {
	started := time.Now()
	_, err := transfer.pass()
	must(b, err)
	return time.Since(started)
}

func benchPlainWrite(b *testing.B, file *os.File, changed *pageSet) time.Duration {
	bytes := filled(mib, 3)
	started := time.Now()
	for run := range changed.runs(vmmemory.Run{Length: benchBytes}, true) {
		for at := uint64(0); at < run.Length; at += mib {
			_, err := file.WriteAt(bytes[:min(mib, run.Length-at)], int64(run.Offset+at))
			must(b, err)
		}
	}
	return time.Since(started)
}
