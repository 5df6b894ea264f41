import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, test } from 'node:test';
import { AppError, type ErrorCode } from '@coppice/contract';
import { ElsewhereError } from '../placement/elsewhere.ts';
import { waitFor } from '../testing/control-harness.ts';
import { layOutTar } from '../testing/tar-of-files.ts';
import { BuildContexts, type ContextLimits } from './build-contexts.ts';

const { signal } = new AbortController();
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const directories: string[] = [];
afterEach(() => {
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
});

/** The notes for other controls. `others`: by id of a context, the control that has it. */
class Notes {
  readonly own = new Map<string, number>();
  readonly others = new Map<string, string>();
  onInsert: () => void = () => undefined;

  async insert({ id }: { id: string }, waitMs: number): Promise<void> {
    this.onInsert();
    this.own.set(id, waitMs);
  }

  async extend(id: string, waitMs: number): Promise<void> {
    this.own.set(id, (this.own.get(id) ?? NaN) + waitMs);
  }

  async delete(id: string): Promise<void> {
    this.own.delete(id);
    throw new AppError('unavailable', 'the database is away');
  }

  async findElsewhere(_organizationId: string, id: string): Promise<string | undefined> {
    return this.others.get(id);
  }
}

function make(limits: ContextLimits = {}): BuildContexts & { directory: string; notes: Notes } {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-contexts-'));
  directories.push(directory);
  const notes = new Notes();
  const contexts = new BuildContexts(directory, notes, { diskReserveMiB: 0, ...limits });
  return Object.assign(contexts, { directory, notes });
}

const archive = (content: string | Buffer = 'x'): Buffer => layOutTar([{ path: 'a', content }]);
const upload = async (contexts: BuildContexts, organization = 'one', content = archive()): Promise<string> =>
  (await contexts.receive(organization, Readable.from([content]), signal)).id;
const hasCode =
  (code: ErrorCode, pattern = /./u) =>
  (error: unknown) =>
    error instanceof AppError && error.code === code && pattern.test(error.message);

test('a context is used by one build, and removed with its end', async () => {
  using contexts = make();
  const id = await upload(contexts);
  assert.throws(() => contexts.take('two', id), hasCode('invalid_request', /no such context/u));
  const taken = contexts.take('one', id);
  assert.equal(taken.index.path(0), 'a');
  assert.throws(() => contexts.take('one', id), hasCode('invalid_request', /another build uses it/u));
  assert.equal(existsSync(taken.path), true);
  await taken[Symbol.asyncDispose]();
  assert.equal(existsSync(taken.path), false);
  assert.throws(() => contexts.take('one', id), hasCode('invalid_request', /was used/u));
  taken.giveBack();
  assert.throws(() => contexts.take('one', id), hasCode('invalid_request', /was used/u));
});

test('a context that a build uses stays after its hour, and one that was given back waits another hour', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  using contexts = make();
  const id = await upload(contexts);
  const taken = contexts.take('one', id);
  t.mock.timers.tick(2 * HOUR_MS);
  assert.equal(existsSync(taken.path), true);
  taken.giveBack();
  t.mock.timers.tick(HOUR_MS - 1);
  contexts.take('one', id).giveBack();
  t.mock.timers.tick(HOUR_MS - 1);
  assert.equal(existsSync(taken.path), true);
  t.mock.timers.tick(1);
  assert.throws(() => contexts.take('one', id), hasCode('invalid_request', /has expired/u));
});

test('other controls find a context from its upload to its end, and a failure to tell them of the end changes nothing', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  using contexts = make();
  const { own } = contexts.notes;
  const [removed, used, late] = [await upload(contexts), await upload(contexts), await upload(contexts)];
  assert.deepEqual(
    [...own],
    [removed, used, late].map((id) => [id, HOUR_MS]),
  );
  await contexts.remove('one', removed);
  const taken = contexts.take('one', used);
  taken.giveBack();
  taken.giveBack();
  assert.deepEqual([own.has(removed), own.get(used)], [false, 2 * HOUR_MS]);
  await contexts.take('one', used)[Symbol.asyncDispose]();
  taken.giveBack();
  assert.deepEqual([...own.keys()], [late]);
  t.mock.timers.tick(HOUR_MS);
  assert.throws(() => contexts.take('one', late), hasCode('invalid_request'));
  await waitFor('the end of the last', () => own.size === 0 && readdirSync(contexts.directory).length === 0);
});

test('a context of which other controls cannot be told is refused and dropped, and takes no room', async () => {
  using contexts = make({ ownIndexBytes: 2 * archive().length + 100 });
  contexts.notes.onInsert = () => {
    throw new AppError('unavailable', 'the database is away');
  };
  for (let round = 0; round < 10; round += 1)
    await assert.rejects(upload(contexts), hasCode('unavailable', /database/u));
  assert.deepEqual(readdirSync(contexts.directory), []);
  contexts.notes.onInsert = () => undefined;
  await upload(contexts);
});

test('a context of another control leads there, and one that none has is refused here', async () => {
  using contexts = make();
  const id = await upload(contexts);
  await contexts.requireHere('one', id);
  await assert.rejects(contexts.requireHere('two', id), hasCode('invalid_request', /no such context/u));
  contexts.notes.others.set('context1', 'ctl1');
  const leadsTo =
    (code: ErrorCode, pattern: RegExp) =>
    (error: unknown): boolean =>
      error instanceof ElsewhereError && error.at === 'ctl1' && hasCode(code, pattern)(error.refusal);
  const builds = leadsTo('invalid_request', /lacks the image that the build begins with/u);
  await assert.rejects(contexts.requireHere('one', 'context1'), builds);
  await assert.rejects(
    contexts.remove('one', 'context1'),
    leadsTo('not_found', /no context "context1" waits/u),
  );
  await assert.rejects(contexts.remove('one', 'context2'), hasCode('not_found'));
});

test('at the limit the context that has waited longest goes, but none of the last minute and none that is used', async () => {
  let nowMs = 0;
  using contexts = make({ nowMs: () => nowMs });
  const ids: string[] = [];
  for (let index = 0; index < 8; index += 1) {
    ids.push(await upload(contexts));
    nowMs += 10;
  }
  await assert.rejects(upload(contexts), hasCode('capacity', /8 contexts/u));
  const [first = '', second = ''] = ids;
  const taken = contexts.take('one', first);
  nowMs += MINUTE_MS + 100;
  ids.push(await upload(contexts));
  assert.throws(() => contexts.take('one', second), hasCode('invalid_request'));
  assert.equal(existsSync(taken.path), true);
  await upload(contexts, 'two');
  for (const id of ids.slice(2)) contexts.take('one', id);
  await assert.rejects(upload(contexts), hasCode('capacity'));
  await taken[Symbol.asyncDispose]();
  await upload(contexts);
});

test('uploads at the same time count, too', async () => {
  using contexts = make();
  const answers = await Promise.allSettled(Array.from({ length: 12 }, () => upload(contexts)));
  assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 8);
});

test('only its organization removes a context, and only while no build uses it', async () => {
  using contexts = make();
  const id = await upload(contexts);
  await assert.rejects(contexts.remove('two', id), hasCode('not_found'));
  const taken = contexts.take('one', id);
  await assert.rejects(contexts.remove('one', id), hasCode('not_found', /a build uses/u));
  taken.giveBack();
  await contexts.remove('one', id);
  await assert.rejects(contexts.remove('one', id), hasCode('not_found'));
  assert.deepEqual(readdirSync(contexts.directory), []);
});

test('free space is checked before and while a context arrives, and a refused context leaves no file', async () => {
  let free = 100;
  using contexts = make({ diskReserveMiB: 1, freeBytes: async () => free });
  let isRead = false;
  const unread = Readable.from(
    (function* () {
      isRead = true;
      yield archive();
    })(),
  );
  await assert.rejects(contexts.receive('one', unread, signal), hasCode('capacity', /no room/u));
  assert.equal(isRead, false);
  free = 2 << 20;
  const filling = Readable.from(
    (function* () {
      for (let sent = 0; ; sent += 1) {
        if (sent > 40) assert.fail('it is never refused');
        free = 0;
        yield Buffer.alloc(1 << 20);
      }
    })(),
  );
  await assert.rejects(contexts.receive('one', filling, signal), hasCode('capacity'));
  assert.deepEqual(readdirSync(contexts.directory), []);
  free = 2 << 20;
  await upload(contexts);
});

test('the contexts of all organizations together have a limit, on disk and in memory', async () => {
  const one = archive(Buffer.alloc(1000));
  using contexts = make({ totalBytes: 2 * one.length });
  const first = await upload(contexts, 'one', one);
  await upload(contexts, 'two', one);
  await assert.rejects(upload(contexts, 'three', one), hasCode('capacity'));
  await contexts.remove('one', first);
  const third = await upload(contexts, 'three', one);
  await contexts.take('three', third)[Symbol.asyncDispose]();
  await upload(contexts, 'four', one);
  // Twice the archive is reserved while it is indexed.
  using small = make({ indexBytes: 2 * archive().length + 100 });
  await upload(small, 'one');
  await upload(small, 'two');
  await assert.rejects(upload(small, 'three'), hasCode('capacity'));
});

test('one organization cannot take the room of the others, on disk or in memory', async () => {
  const one = archive(Buffer.alloc(1000));
  using contexts = make({ ownBytes: 2 * one.length });
  const first = await upload(contexts, 'one', one);
  await upload(contexts, 'one', one);
  await assert.rejects(upload(contexts, 'one', one), hasCode('capacity', /your organization take all room/u));
  await upload(contexts, 'two', one);
  await contexts.remove('one', first);
  await upload(contexts, 'one', one);
  using small = make({ ownIndexBytes: 2 * archive().length + 100 });
  await upload(small, 'one');
  await upload(small, 'one');
  await assert.rejects(upload(small, 'one'), hasCode('capacity', /your organization/u));
  await upload(small, 'two');
});

test('the memory of an index is reserved before it is made, and one organization makes one at a time', async () => {
  using contexts = make({ ownIndexBytes: 2 * archive().length + 8 * 100 });
  const answers = await Promise.allSettled(Array.from({ length: 8 }, () => upload(contexts)));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set(['fulfilled']));
  using shared = make({ indexBytes: 2 * archive().length + 100 });
  const both = await Promise.allSettled(['one', 'two', 'three'].map((owner) => upload(shared, owner)));
  assert.ok(both.some(({ status }) => status === 'rejected'));
  await assert.rejects(upload(shared, 'one', Buffer.from('x'.repeat(2000))), hasCode('invalid_request'));
  using empty = make({ indexBytes: 4000 });
  await assert.rejects(upload(empty, 'one', Buffer.from('x'.repeat(2000))), hasCode('invalid_request'));
  await assert.rejects(upload(empty, 'one', Buffer.from('x'.repeat(2000))), hasCode('invalid_request'));
});

test('a full disk is no fault of the service', async () => {
  using contexts = make();
  const failing = Readable.from(
    (function* () {
      yield archive();
      throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
    })(),
  );
  await assert.rejects(contexts.receive('one', failing, signal), hasCode('capacity'));
});

test('what is no archive leaves nothing', async () => {
  using contexts = make();
  for (let round = 0; round < 10; round += 1)
    await assert.rejects(
      upload(contexts, 'one', Buffer.from('x'.repeat(2000))),
      hasCode('invalid_request', /no usable tar archive/u),
    );
  assert.deepEqual(readdirSync(contexts.directory), []);
});
