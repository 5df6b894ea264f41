import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import fc from 'fast-check';
import { FormFile, isForm } from './form-file.ts';

const BOUNDARY = 'xBoundaryx';
const CONTENT_TYPE = `multipart/form-data; boundary=${BOUNDARY}`;
const NEVER = new AbortController().signal;

function toRequest(body: Readable, contentType = CONTENT_TYPE): IncomingMessage {
  return Object.assign(body, { headers: { 'content-type': contentType } }) as unknown as IncomingMessage;
}

function part(
  content: string | Buffer,
  disposition = 'form-data; name="file"; filename="f"',
  more = '',
): Buffer {
  const head = `--${BOUNDARY}\r\nContent-Disposition: ${disposition}\r\n${more}\r\n`;
  return Buffer.concat([Buffer.from(head), Buffer.from(content), Buffer.from('\r\n')]);
}

function form(...parts: Buffer[]): Buffer {
  return Buffer.concat([...parts, Buffer.from(`--${BOUNDARY}--\r\n`)]);
}

/** Cuts `body` at the given places. */
function cut(body: Buffer, places: readonly number[]): Buffer[] {
  const sorted = [
    0,
    ...places.map((place) => place % (body.length + 1)).toSorted((a, b) => a - b),
    body.length,
  ];
  return sorted.slice(1).map((end, index) => body.subarray(sorted[index], end));
}

async function read(chunks: readonly Buffer[], contentType?: string): Promise<Buffer> {
  const request = toRequest(Readable.from(chunks.filter((chunk) => chunk.length > 0)), contentType);
  using opened = await FormFile.open(request, NEVER);
  return await buffer(opened.content);
}

async function assertRefused(body: Buffer, says: RegExp, contentType?: string): Promise<void> {
  await assert.rejects(
    read([body], contentType),
    (error) => error instanceof AppError && error.code === 'invalid_request' && says.test(error.message),
  );
}

const Places = fc.array(fc.nat({ max: 10_000 }), { maxLength: 20 });
/** Bytes that look like boundaries of parts, and any others. */
const Content = fc
  .array(
    fc.oneof(
      fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
      fc
        .constantFrom('\r\n', '--', '\r\n--', '\r', '\n--xBoundary', '\r\n--xBoundar')
        .map((text) => Buffer.from(text)),
    ),
    { maxLength: 20 },
  )
  .map((pieces) => Buffer.concat(pieces))
  .filter((content) => !content.includes(`--${BOUNDARY}`));

test('the file arrives byte for byte, however the body is cut into pieces', async () => {
  await fc.assert(
    fc.asyncProperty(Content, Places, async (content, places) => {
      assert.deepEqual(await read(cut(form(part(content)), places)), content);
    }),
    { numRuns: 300 },
  );
});

test('a form that is cut off anywhere is never accepted as whole', async () => {
  await fc.assert(
    fc.asyncProperty(Content, Places, fc.nat(), async (content, places, length) => {
      const whole = form(part(content));
      // The line break after the closing boundary carries no information.
      const body = whole.subarray(0, length % (whole.length - '\r\n'.length));
      await assert.rejects(read(cut(body, places)), AppError);
    }),
    { numRuns: 300 },
  );
});

test('a damaged form is read or refused, and never hangs', { timeout: 60_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(
      Content,
      Places,
      fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { maxLength: 5 }),
      async (content, places, changes) => {
        const body = Buffer.from(form(part(content)));
        for (const [place, value] of changes) body[place % body.length] = value;
        await read(cut(body, places)).catch((error: unknown) =>
          assert.ok(error instanceof AppError, String(error)),
        );
      },
    ),
    { numRuns: 300 },
  );
});

test('a part without a file name is a file, too', async () => {
  assert.equal(String(await read([form(part('text', 'form-data; name=file'))])), 'text');
  assert.equal(String(await read([form(part('', 'form-data; name=file'))])), '');
});

test('preamble and epilogue are discarded', async () => {
  const body = Buffer.concat([Buffer.from('preamble\r\n'), form(part('text')), Buffer.from('epilogue')]);
  assert.equal(String(await read(cut(body, [3, 15, body.length - 3]))), 'text');
});

test('a form with anything but one part "file" is refused', async () => {
  await assertRefused(form(), /no part named "file"/);
  await assertRefused(Buffer.alloc(0), /up to its closing boundary/);
  await assertRefused(
    form(part('x', 'form-data; name="path"')),
    /unknown part "path"; send only the part "file"/,
  );
  await assertRefused(form(part('x', 'form-data; filename="f"')), /part without a name/);
  await assertRefused(form(part('x', 'attachment; name="file"')), /no part named "file"/);
  await assertRefused(form(part('x'), part('y')), /more than one part/);
  await assertRefused(form(part('x'), part('y', 'form-data; name="mode"')), /more than one part/);
  await assertRefused(
    form(part('eA==', undefined, 'Content-Transfer-Encoding: base64\r\n')),
    /"base64"; send plain bytes/,
  );
});

test('a form whose file does not begin is refused', async () => {
  const filler = Buffer.alloc(1 << 20, 'x');
  await assertRefused(filler, /in its first 64 KiB/);
  await assertRefused(
    form(part('x', `form-data; name="file"; filename="${filler.toString()}"`)),
    /no part named "file"/,
  );
});

test('a boundary that is missing or malformed is refused', async () => {
  for (const contentType of [
    'multipart/form-data',
    'multipart/form-data; boundary',
    'multipart/form-data; charset=x',
  ])
    await assertRefused(form(part('x')), /^Content-Type: .*boundary/, contentType);
  await assertRefused(form(part('x')), /closing boundary|no part/, 'multipart/form-data; boundary=another');
});

test('only multipart/form-data is a form', () => {
  for (const type of [
    'multipart/form-data',
    'Multipart/Form-Data; boundary=x',
    'multipart/form-data ;boundary=x',
  ])
    assert.equal(isForm(type), true, type);
  for (const type of [
    undefined,
    '',
    'multipart/mixed; boundary=x',
    'multipart/form-datax',
    'text/plain; multipart/form-data',
  ])
    assert.equal(isForm(type), false, type);
});

test('a reader that stops makes the body wait', { timeout: 10_000 }, async () => {
  let sentBytes = 0;
  const source = new Readable({
    read() {
      const chunk = sentBytes === 0 ? part('').subarray(0, -2) : Buffer.alloc(64 << 10, 'x');
      sentBytes += chunk.length;
      this.push(chunk);
    },
  });
  using opened = await FormFile.open(toRequest(source), NEVER);
  for (let turn = 0; turn < 1000; turn += 1) await nextTurn();
  assert.ok(sentBytes < 1 << 20, `${sentBytes} bytes were read`);
  source.destroy();
  assert.equal(opened.content.readableEnded, false);
});

test('a client that leaves, and an aborted upload, break the content', async () => {
  const leave = (source: Readable) => source.destroy();
  const reason = new AppError('guest_unreachable', 'too slow');
  const controller = new AbortController();
  const giveUp = () => controller.abort(reason);
  for (const [end, code] of [
    [leave, 'invalid_request'],
    [giveUp, 'guest_unreachable'],
  ] as const) {
    const source = new Readable({ read: () => undefined });
    source.push(part('text').subarray(0, -2));
    using opened = await FormFile.open(toRequest(source), controller.signal);
    const content = buffer(opened.content);
    end(source);
    await assert.rejects(content, (error) => error instanceof AppError && error.code === code);
  }
});
