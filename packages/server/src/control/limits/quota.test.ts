import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { Limits } from './organization-limits.ts';
import { checkQuota, checkResume } from './quota.ts';

const LIMITS: Limits = {
  sandboxes: 3,
  vcpus: 4,
  memMiB: 4096,
  openRequests: 1,
  openStreams: 1,
  snapshotBytes: 1,
  disks: 1,
  diskGb: 1,
  requestsPerSecond: 1,
  requestBurst: 1,
};
const small = { vcpus: 1, mem_mib: 1024 };
const large = { vcpus: 3, mem_mib: 1024 };

const refuses = (pattern: RegExp) => (error: unknown) =>
  error instanceof AppError && error.code === 'capacity' && pattern.test(error.message);

test('a request that fits exactly is allowed', () => {
  checkQuota(LIMITS, { sandboxes: 2, ...large }, [small]);
});

test('a refusal names its limit', () => {
  assert.throws(
    () => checkQuota(LIMITS, { sandboxes: 3, vcpus: 0, mem_mib: 0 }, [small]),
    refuses(/3 live sandboxes and asks for 1 more, the limit is 3/),
  );
  assert.throws(
    () => checkQuota(LIMITS, { sandboxes: 1, ...large }, [small, small]),
    refuses(/3 vCPUs in use and asks for 2 more, the limit is 4/),
  );
  assert.throws(
    () => checkQuota(LIMITS, { sandboxes: 1, vcpus: 0, mem_mib: 0 }, [{ vcpus: 1, mem_mib: 5000 }]),
    refuses(/MiB of memory in use/),
  );
});

test('a resume is checked for what it holds, not for the number of sandboxes', () => {
  checkResume(LIMITS, { sandboxes: 9, ...large }, small);
  assert.throws(() => checkResume(LIMITS, { sandboxes: 1, ...large }, large), refuses(/6 vCPUs in use, the/));
});
