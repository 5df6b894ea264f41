import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildCpuModel, parseExpansion } from './qemu-cpu.ts';

const EXPANSION = {
  model: {
    name: 'base',
    props: {
      'sse4.1': true,
      vmx: false,
      family: 6,
      'min-xlevel': 2_147_483_656,
      vendor: 'GenuineIntel',
      'model-id': 'Intel(R) Xeon(R), all of it',
    },
  },
};

test('a CPU has the properties that QEMU reports, sorted, without the absent features', () => {
  const cpu = parseExpansion(EXPANSION);
  assert.deepEqual(Object.entries(cpu), [
    ['family', 6],
    ['min-xlevel', 2_147_483_656],
    ['model-id', 'Intel(R) Xeon(R)  all of it'],
    ['sse4.1', true],
    ['vendor', 'GenuineIntel'],
  ]);
});

test('an answer that is not a static model is refused', () => {
  for (const answer of [undefined, {}, { model: { ...EXPANSION.model, name: 'host' } }])
    assert.throws(() => parseExpansion(answer));
});

test('guests get no nested virtualization, fifth page-table level, performance counters or async page faults', () => {
  const { name, props } = buildCpuModel('host');
  assert.deepEqual([name, props['migratable']], ['host', true]);
  for (const withheld of ['vmx', 'svm', 'la57', 'pmu', 'perfctr-core', 'kvm-asyncpf-int'])
    assert.equal(props[withheld], false, withheld);
});

test('each level includes the one below it and has its own name for the guest', () => {
  const levels = (['x86-64-v2', 'x86-64-v3', 'x86-64-v4'] as const).map(
    (level) => buildCpuModel(level).props,
  );
  assert.deepEqual(
    levels.map((props) => [props['model-id'], 'avx2' in props, 'avx512f' in props]),
    [
      ['x86-64-v2', false, false],
      ['x86-64-v3', true, false],
      ['x86-64-v4', true, true],
    ],
  );
  for (const [index, props] of levels.entries())
    for (const name of Object.keys(levels[index - 1] ?? {})) assert.ok(name in props, name);
});
