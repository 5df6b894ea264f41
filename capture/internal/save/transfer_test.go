package save

import (
	"os"
	"slices"
	"testing"

	"coppice/capture/internal/ramfile"
	"coppice/capture/internal/vmmemory"
)

func TestAKernelThatCannotPreparePagesCopiesThemAllTheSame(t *testing.T) {
	s := newSite(t)
	s.vm.Fill(t, 2*mib, mib, 'a')
	s.vm.Fill(t, 20*mib, mib, 'b')
	base, err := os.Open(s.base)
	must(t, err)
	defer base.Close()
	memory, err := vmmemory.Open(s.vm.Pid, base, ramBytes)
	must(t, err)
	defer memory.Close()
	file, err := os.OpenFile(s.target, os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	defer file.Close()
	data := newPageSet(ramBytes)
	_, err = ramfile.CopyBase(file, base, ramBytes, data.addExtent)
	must(t, err)
	transfer := newTransfer(memory, file, ramBytes, data)
	transfer.close()
	for range 2 {
		_, err = transfer.pass()
		must(t, err)
		s.expectTarget(t)
		s.vm.Fill(t, 2*mib, mib, 0)
		s.vm.Fill(t, 20*mib, mib, 0)
		s.vm.Fill(t, 30*mib, 4096, 'c')
	}
	_, err = transfer.pass()
	must(t, err)
	s.expectTarget(t)
}

func TestPagesAreYieldedInTheLongestRuns(t *testing.T) {
	const page = vmmemory.PageSize
	run := func(offset, length uint64) vmmemory.Run { return vmmemory.Run{Offset: offset, Length: length} }
	set := newPageSet(200 * page)
	set.add(vmmemory.Run{Offset: 62 * page, Length: 4 * page})
	set.add(vmmemory.Run{Offset: 66 * page, Length: page})
	set.addExtent(ramfile.Extent{Offset: 198*page - 1, Length: page + 2})
	all := vmmemory.Run{Length: 200 * page}
	for _, test := range []struct {
		within vmmemory.Run
		wanted bool
		want   []vmmemory.Run
	}{
		{all, true, []vmmemory.Run{run(62*page, 5*page), run(197*page, 3*page)}},
		{all, false, []vmmemory.Run{run(0, 62*page), run(67*page, 130*page)}},
		{vmmemory.Run{Offset: 63 * page, Length: 2 * page}, true, []vmmemory.Run{run(63*page, 2*page)}},
		{vmmemory.Run{Offset: 63 * page, Length: 2 * page}, false, nil},
	} {
		if got := slices.Collect(set.runs(test.within, test.wanted)); !slices.Equal(got, test.want) {
			t.Errorf("%v in %v: %v instead of %v", test.wanted, test.within, got, test.want)
		}
	}
}
