package workload

import (
	"syscall"
	"testing"
)

func TestWithoutAGroupACommandRunsWhereTheAgentDoes(t *testing.T) {
	attr := syscall.SysProcAttr{}
	var none *Group
	none.Place(&attr)
	if attr.UseCgroupFD {
		t.Error("a process is placed in a group that does not exist")
	}
}

func TestAHierarchyThatCannotBeWrittenIsNoGroup(t *testing.T) {
	group := Group{hierarchy: t.TempDir() + "/absent"}
	if err := group.make(); err == nil {
		t.Error("a group was created in a directory that does not exist")
	}
	attr := syscall.SysProcAttr{}
	group.Place(&attr)
	if attr.UseCgroupFD {
		t.Error("a process is placed in a group that could not be created")
	}
}
