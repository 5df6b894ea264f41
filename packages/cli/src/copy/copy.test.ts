import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { requireName, staysInside } from './download.ts';
import { eachOf } from './each-of.ts';
import { joinPath, lastName, meansContent, parsePlace } from './place.ts';
import { joinCommands } from './upload.ts';

test('a place is in a sandbox, local, or a stream', () => {
  assert.deepEqual(parsePlace('run01:/a:b'), { kind: 'sandbox', sandbox: 'run01', path: '/a:b' });
  assert.deepEqual(parsePlace('run01:x'), { kind: 'sandbox', sandbox: 'run01', path: 'x' });
  assert.deepEqual(parsePlace('my build.1:x'), { kind: 'sandbox', sandbox: 'my build.1', path: 'x' });
  for (const path of ['x', './a:b', '/a:b', '../a:b', ''])
    assert.deepEqual(parsePlace(path), { kind: 'local', path });
  assert.deepEqual(parsePlace('-'), { kind: 'stream' });
  assert.throws(() => parsePlace('run01:'), /name a path in the sandbox, such as run01:\/workspace/u);
});

test('the name of a copy is the last name of its source', () => {
  assert.deepEqual(['/a/b/', 'b', './b/.'].map(lastName), ['b', 'b', 'b']);
  for (const path of ['/', '..', 'a/..', '.'])
    assert.throws(() => lastName(path), /name a file or directory/u);
  assert.deepEqual(['.', 'a/.', 'a', 'a.', '..'].map(meansContent), [true, true, false, false, false]);
  assert.equal(joinPath('/', 'a'), '/a');
});

test('a name that is a path is refused', () => {
  for (const name of ['', '.', '..', 'a/b', '/', 'a\0b'])
    assert.throws(() => requireName(name), /is not one/u);
  for (const name of ['a', '...', '.a', 'a b', 'ü']) assert.equal(requireName(name), name);
});

test('a link may lead only to a place in the tree', () => {
  const inside: [string, string][] = [
    ['a', 'b'],
    ['a', './b/c'],
    ['d/a', '../b'],
    ['d/e/a', '../../b'],
    ['d/a', '..'],
  ];
  for (const [path, target] of inside) assert.ok(staysInside(path, target), `${path} -> ${target}`);
  const outside: [string, string][] = [
    ['a', '/etc'],
    ['a', '..'],
    ['a', '../a'],
    ['d/a', '../../b'],
    // The parent of the other link's target, not of the link.
    ['d/a', 'link/../b'],
    ['d/a', '../link/../../b'],
    ['a', ''],
    ['a', 'b\0'],
  ];
  for (const [path, target] of outside) assert.ok(!staysInside(path, target), `${path} -> ${target}`);
});

test('commands are joined into batches of limited length', () => {
  assert.deepEqual(joinCommands(['a', 'b']), ['a && b']);
  const long = 'x'.repeat(20_000);
  assert.deepEqual(joinCommands([long, long, 'b']), [long, `${long} && b`]);
  assert.deepEqual(joinCommands([]), []);
});

test('work runs in a few lanes, and ends with the first failure', async () => {
  async function* numbers() {
    for (let number = 1; number <= 10; number += 1) yield number;
  }
  let [running, most] = [0, 0];
  const done: number[] = [];
  const work = async (number: number): Promise<void> => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
    if (number === 5) throw new Error('five');
    done.push(number);
  };
  const failures: unknown[] = [];
  const onFailure = (error: unknown) => failures.push(error);
  await assert.rejects(eachOf(numbers(), { lanes: 3, work, onFailure }), /five/u);
  assert.equal(failures.length, 1);
  assert.equal(most, 3);
  assert.equal(running, 0);
  assert.ok(done.length < 9, `${done.length} were done`);
});

test('work that runs is waited for, and told to end, when the items themselves fail', async () => {
  const ending = new AbortController();
  let isUndone = false;
  async function* items() {
    yield 1;
    throw new Error('the list is broken');
  }
  const work = async (): Promise<void> => {
    if (!ending.signal.aborted) await once(ending.signal, 'abort');
    await new Promise((resolve) => setImmediate(resolve));
    isUndone = true;
  };
  const copied = eachOf(items(), { lanes: 2, work, onFailure: (error) => ending.abort(error) });
  await assert.rejects(copied, /the list is broken/u);
  assert.ok(isUndone);
});
