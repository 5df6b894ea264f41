import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { BUILTIN_SERVICES } from '../../lib/credential-services/builtin-services.ts';
import { NO_RULES, readEgressRecord, toEgressRecord } from '../driver/vm-egress.ts';
import { findVmRecord, writeVmRecord, type VmRecord } from './vm-record.ts';

const RECORD: VmRecord = {
  version: 2,
  info: {
    id: 'run00000000000000000001',
    state: 'running',
    image: 'coppice/base:1',
    vcpus: 1,
    mem_mib: 256,
    disk_mib: 64,
    timings_ms: {},
  },
  image: { reference: 'coppice/base:1', digest: 'sha256:0', config: { env: {}, user: '', workdir: '/' } },
  shape: { accelerator: 'tcg', vcpus: 1, memMiB: 256, diskMiB: 64 },
  template: null,
  machine: 'm',
  slot: 3,
  uid: 100_003,
  cgroups: [],
  host_boot_id: 'b',
  process: null,
  generation: 1,
  resume: 1,
  capturing: false,
  rollbacks: [],
  retired: false,
};

function withDirectory(use: (directory: string) => void): void {
  const directory = mkdtempSync(join(tmpdir(), 'record-'));
  try {
    use(directory);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('the record holds what a sandbox may send, but no secret', () => {
  withDirectory((directory) => {
    const [service] = BUILTIN_SERVICES;
    const network = { ...NO_RULES.network, default: 'deny' as const, allow: ['*.example.com'] };
    const grants = [
      { service: service!, endpoints: [{ methods: ['GET' as const], paths: ['/v1'] }], secret: 'canary-2' },
    ];
    writeVmRecord(directory, { ...RECORD, egress: toEgressRecord({ network, grants }) });
    assert.doesNotMatch(readFileSync(join(directory, 'vm.json'), 'utf8'), /canary/u);
    const { egress } = findVmRecord(directory)!;
    assert.equal(egress?.grants[0]?.service.name, service?.name);
    const [grant] = grants;
    assert.deepEqual(readEgressRecord(egress), { network, grants: [{ ...grant, secret: null }] });
  });
});

test('a record from before rules were introduced means a sandbox without rules', () => {
  withDirectory((directory) => {
    writeVmRecord(directory, RECORD);
    assert.deepEqual(readEgressRecord(findVmRecord(directory)?.egress), NO_RULES);
  });
});

test('a record with unreadable rules is treated as missing: its VM is not adopted without rules', () => {
  withDirectory((directory) => {
    const egress = { network: { ...NO_RULES.network, default: 'maybe' }, grants: [] };
    writeVmRecord(directory, { ...RECORD, egress: egress as never });
    assert.equal(findVmRecord(directory), undefined);
  });
});

test('the record holds the CPU of a VM; older records have none', () => {
  withDirectory((directory) => {
    const shape: VmRecord['shape'] = {
      ...RECORD.shape,
      accelerator: 'kvm',
      cpu: { vendor: 'GenuineIntel', 'model-id': 'a CPU @ 2.00GHz', family: 6, 'sse4.1': true },
    };
    writeVmRecord(directory, { ...RECORD, shape });
    assert.deepEqual(findVmRecord(directory)?.shape, shape);
    writeVmRecord(directory, RECORD);
    assert.equal(findVmRecord(directory)?.shape.cpu, undefined);
  });
});
