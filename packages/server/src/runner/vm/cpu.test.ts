import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cpu, findMissing } from './cpu.ts';

test('a record cannot inject properties into the CPU argument', () => {
  for (const forged of [{ 'avx=on,host-phys-bits': true }, { vendor: 'a,migratable=off' }, { avx: false }])
    assert.equal(Cpu.safeParse(forged).success, false, JSON.stringify(forged));
});

test('missing features and another vendor are named; values such as the model do not matter', () => {
  const host: Cpu = { vendor: 'AuthenticAMD', model: 1, avx: true, avx2: true };
  assert.deepEqual(findMissing({ vendor: 'AuthenticAMD', model: 7, avx: true }, host), []);
  assert.deepEqual(findMissing({ vendor: 'AuthenticAMD', pcid: true, avx: true, avx512f: true }, host), [
    'avx512f',
    'pcid',
  ]);
  assert.deepEqual(findMissing({ vendor: 'GenuineIntel', avx: true }, host), ['vendor GenuineIntel']);
});
