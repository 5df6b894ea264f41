package save

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/capture/internal/digest"
	"coppice/capture/internal/fault"
)

var copyStep, finishStep = request{Step: "copy"}, request{Step: "finish"}

func TestTheFileIsWhatTheVMSees(t *testing.T) {
	s := newSite(t)
	s.vm.Fill(t, 0, 4096, 'a')
	s.vm.Fill(t, 2*mib, mib, 0) // zeros over data
	s.vm.Fill(t, 4*mib, 4096, 'b')
	s.vm.Dirty(t, 5*mib, mib, 2)
	s.vm.Fill(t, 30*mib, 10*mib, 'c')
	s.vm.Fill(t, 45*mib, 4*mib, 0) // zeros over a hole
	s.vm.Read(t, 0, ramBytes)
	s.vm.Advise(t, 30*mib, 4*mib, unix.MADV_PAGEOUT) // to swap, if there is any

	program := startProgram(t)
	ready := program.expect(t, s.plan(), "ready")
	if want := int64(8 * mib); ready.BaseBytes != want {
		t.Errorf("%d bytes of the base instead of %d", ready.BaseBytes, want)
	}
	if want := int64(4096 + mib + 4096 + mib/2 + 10*mib + 4*mib); ready.DirtyBytes != want {
		t.Errorf("%d bytes changed instead of %d", ready.DirtyBytes, want)
	}
	s.vm.Fill(t, 4*mib, 4096, 0)
	s.vm.Advise(t, 5*mib, mib, unix.MADV_DONTNEED) // the base's again
	s.vm.Fill(t, 31*mib, mib, 'd')
	s.vm.Fill(t, 32*mib, mib, 0)
	s.vm.Fill(t, 46*mib, 4096, 'e')
	s.vm.Fill(t, ramBytes-3*4096, 3*4096, 'f')
	copied := program.expect(t, copyStep, "copied")
	if want := ready.DirtyBytes + 3*4096; copied.Bytes != want {
		t.Errorf("%d bytes copied instead of %d", copied.Bytes, want)
	}
	finished := program.expect(t, request{Step: "finish", Sync: true}, "finished")
	program.expectExit(t, 0)

	s.expectTarget(t)
	sum, err := digest.Path(s.target)
	must(t, err)
	if finished.Digest != sum.Digest {
		t.Errorf("digest %s instead of %s", finished.Digest, sum.Digest)
	}
	info, err := os.Stat(s.target)
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	// Data of the base, 10 MiB over holes, and four pages, plus the file system's own blocks.
	if most := int64(19 * mib); finished.AllocatedBytes > most {
		t.Errorf("%d bytes on the disk, more than %d", finished.AllocatedBytes, most)
	}
}

func TestWithoutSyncThereIsNoDigest(t *testing.T) {
	s := newSite(t)
	program := startProgram(t)
	program.expect(t, s.plan(), "ready")
	program.expect(t, copyStep, "copied")
	if finished := program.expect(t, finishStep, "finished"); finished.Digest != "" {
		t.Errorf("digest %s", finished.Digest)
	}
	program.expectExit(t, 0)
	s.expectTarget(t)
}

func TestACopyThatIsAskedForAgainHasWhatChangedSince(t *testing.T) {
	s := newSite(t)
	program := startProgram(t)
	program.expect(t, s.plan(), "ready")
	s.vm.Fill(t, 20*mib, 4096, 'a')
	program.expect(t, copyStep, "copied")
	s.vm.Fill(t, 20*mib, 4096, 'b')
	s.vm.Fill(t, 40*mib, mib, 'c')
	program.expect(t, copyStep, "copied")
	program.expect(t, finishStep, "finished")
	program.expectExit(t, 0)
	s.expectTarget(t)
}

func TestRAMThatQEMUHasTreatedInPartsIsFound(t *testing.T) {
	s := newSite(t)
	s.vm.Fill(t, 20*mib, mib, 'a')
	s.vm.Advise(t, 10*mib, mib, unix.MADV_DONTFORK)
	s.vm.Advise(t, 20*mib, 4096, unix.MADV_DONTDUMP)
	s.vm.Map(t, 0, ramBytes, unix.MAP_SHARED)
	s.vm.Map(t, mib, 8*mib, unix.MAP_PRIVATE)
	program := startProgram(t)
	program.expect(t, s.plan(), "ready")
	program.expect(t, copyStep, "copied")
	program.expect(t, finishStep, "finished")
	s.expectTarget(t)
}

func TestAProcessThatDoesNotMapTheRAMOnceIsRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(*testing.T, *site)
		want    string
	}{
		{"a part is missing", func(t *testing.T, s *site) { s.vm.Unmap(t, 20*mib, 4096) }, "no private mapping of the whole"},
		{"it is mapped twice", func(t *testing.T, s *site) { s.vm.Map(t, 0, ramBytes, unix.MAP_PRIVATE) }, "2 private mappings"},
		{"another file has that name now", func(t *testing.T, s *site) {
			must(t, os.Rename(s.base, s.base+".old"))
			must(t, os.WriteFile(s.base, nil, 0o600))
			must(t, os.Truncate(s.base, ramBytes))
		}, "no private mapping of the whole"},
		{"the base is shorter", func(t *testing.T, s *site) { must(t, os.Truncate(s.base, ramBytes-4096)) }, "is not a file of"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			test.prepare(t, s)
			program := startProgram(t)
			refused := program.expect(t, s.plan(), "error")
			if refused.Code != fault.Internal || !strings.Contains(refused.Message, test.want) {
				t.Errorf("got %+v, want something about %q", refused, test.want)
			}
			program.expectExit(t, 1)
			s.expectNoTarget(t)
		})
	}
}

func TestAVMThatGoesAwayIsToldFromAnError(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		s := newSite(t)
		s.vm.End()
		if failed := startProgram(t).expect(t, s.plan(), "error"); failed.Code != fault.VMGone {
			t.Errorf("got %+v", failed)
		}
		s.expectNoTarget(t)
	})
	t.Run("after ready", func(t *testing.T) {
		s := newSite(t)
		s.vm.Fill(t, 0, mib, 'a')
		program := startProgram(t)
		program.expect(t, s.plan(), "ready")
		s.vm.End()
		if failed := program.expect(t, copyStep, "error"); failed.Code != fault.VMGone {
			t.Errorf("got %+v", failed)
		}
		program.expectExit(t, 1)
		s.expectNoTarget(t)
	})
	t.Run("only its memory", func(t *testing.T) {
		s := newSite(t)
		s.vm.Fill(t, 0, mib, 'a')
		program := startProgram(t)
		program.expect(t, s.plan(), "ready")
		s.vm.Unmap(t, 4096, 4096)
		if failed := program.expect(t, copyStep, "error"); failed.Code != fault.Internal {
			t.Errorf("got %+v", failed)
		}
		s.expectNoTarget(t)
	})
}

func TestAFileThatIsThereAlreadyIsLeftAlone(t *testing.T) {
	s := newSite(t)
	must(t, os.WriteFile(s.target, []byte("mine"), 0o644))
	program := startProgram(t)
	if failed := program.expect(t, s.plan(), "error"); !strings.Contains(failed.Message, "file exists") {
		t.Errorf("got %+v", failed)
	}
	program.expectExit(t, 1)
	if content, err := os.ReadFile(s.target); err != nil || string(content) != "mine" {
		t.Errorf("it is %q now, %v", content, err)
	}
}

func TestTheEndOfTheInputRemovesTheFile(t *testing.T) {
	for _, steps := range [][]any{{}, {copyStep}} {
		s := newSite(t)
		program := startProgram(t)
		program.expect(t, s.plan(), "ready")
		for _, step := range steps {
			program.expect(t, step, "copied")
		}
		must(t, program.stdin.Close())
		program.expectExit(t, 1)
		s.expectNoTarget(t)
	}
	s := newSite(t)
	s.vm.Fill(t, 0, ramBytes, 'a')
	program := startProgram(t)
	program.write(t, s.plan())
	must(t, program.stdin.Close())
	program.expectExit(t, 1)
	s.expectNoTarget(t)
}

func TestASignalRemovesTheFile(t *testing.T) {
	s := newSite(t)
	program := startProgram(t)
	program.expect(t, s.plan(), "ready")
	must(t, program.command.Process.Signal(unix.SIGTERM))
	program.expectExit(t, 1)
	s.expectNoTarget(t)
}

func TestAnAnswerThatNobodyReadsRemovesTheFile(t *testing.T) {
	s := newSite(t)
	reader, writer, err := os.Pipe()
	must(t, err)
	program := startProgramTo(t, writer)
	must(t, reader.Close())
	must(t, writer.Close())
	program.write(t, s.plan())
	program.expectExit(t, 1)
	s.expectNoTarget(t)
}

func TestInputThatIsNoProtocolEndsTheProgram(t *testing.T) {
	s := newSite(t)
	for _, input := range []string{
		"", "\n", "null\n", "{", `{"pid":1}` + "\n", "[1,2]\n", strings.Repeat("x", 200<<10), strings.Repeat("{}\n", 20),
		`{"pid":1,"base":"/b","target":"/t","size_bytes":4096,"more":1}` + "\n",
		`{"pid":1,"base":"/b","target":"/t","size_bytes":4096} {}` + "\n",
		`{"pid":-1,"base":"/b","target":"/t","size_bytes":4096}` + "\n",
		`{"pid":1,"base":"b","target":"/t","size_bytes":4096}` + "\n",
		`{"pid":1,"base":"/b","target":"/t","size_bytes":4097}` + "\n",
		`{"pid":1,"base":"/b","target":"/t","size_bytes":1e30}` + "\n",
		`{"pid":1,"base":"/dev/zero","target":"/t","size_bytes":4096}` + "\n",
	} {
		program := startProgram(t)
		_, _ = program.stdin.Write([]byte(input))
		if strings.HasPrefix(input, "{\"pid") && !program.stdout.Scan() {
			t.Errorf("%.80q: no answer", input)
		}
		_ = program.stdin.Close()
		program.expectExit(t, 1)
	}
	for _, wrong := range []any{finishStep, request{Step: "stop"}, 7} {
		program := startProgram(t)
		program.expect(t, s.plan(), "ready")
		program.expect(t, wrong, "error")
		program.expectExit(t, 1)
		s.expectNoTarget(t)
	}
}

func TestAFullDiskIsToldFromAnError(t *testing.T) {
	t.Run("a limit on the size of files", func(t *testing.T) {
		s := newSite(t)
		program := startProgram(t)
		limit := unix.Rlimit{Cur: mib, Max: mib}
		must(t, unix.Prlimit(program.command.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil))
		if failed := program.expect(t, s.plan(), "error"); failed.Code != fault.DiskFull {
			t.Errorf("got %+v", failed)
		}
		s.expectNoTarget(t)
	})
	for _, test := range []struct {
		name   string
		before int64
		after  int64
	}{{"in the first pass", 20 * mib, 0}, {"in the second pass", 0, 20 * mib}} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.target = filepath.Join(mountSmall(t), "target")
			s.vm.Fill(t, 20*mib, test.before, 'a')
			program := startProgram(t)
			failed := program.ask(t, s.plan())
			if test.after > 0 && failed.Step == "ready" {
				s.vm.Fill(t, 20*mib, test.after, 'a')
				failed = program.ask(t, copyStep)
			}
			if failed.Code != fault.DiskFull {
				t.Errorf("got %+v", failed)
			}
			program.expectExit(t, 1)
			s.expectNoTarget(t)
		})
	}
}

// mountSmall mounts a file system with room for little more than the base's data.
func mountSmall(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: only root can mount a file system")
	}
	directory := t.TempDir()
	must(t, unix.Mount("tmpfs", directory, "tmpfs", 0, "size=12m"))
	t.Cleanup(func() { must(t, unix.Unmount(directory, unix.MNT_DETACH)) })
	return directory
}
