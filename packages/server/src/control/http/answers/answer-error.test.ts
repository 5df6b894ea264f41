/** If anything fails while an error is answered, the request ends and the process keeps running. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as sendRequest, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { answerError } from './answer-error.ts';

const DEADLINE_MS = 5_000;
let app: FastifyInstance;
afterEach(() => app.close());

type Handler = (request: FastifyRequest, reply: FastifyReply) => unknown;

interface Seen {
  status: number;
  phrase: string;
  /** Undefined when the answer broke off. */
  body: { error: { code: string; request_id: string } } | undefined;
}

/** Returns the answer of `handler`; undefined when the connection was closed without one. */
async function ask(handler: Handler, change: (app: FastifyInstance) => void = () => undefined) {
  app = Fastify({ frameworkErrors: answerError });
  app.setErrorHandler(answerError);
  change(app);
  app.get('/', async (request, reply) => handler(request, reply));
  app.get('/alive', async () => 'yes');
  await app.listen({ host: '127.0.0.1', port: 0 });
  const seen = await get('/');
  assert.ok(await get('/alive'), 'the process keeps serving');
  return seen;
}

async function get(path: string): Promise<Seen | undefined> {
  const { port } = app.server.address() as AddressInfo;
  const sent = sendRequest({ host: '127.0.0.1', port, path, timeout: DEADLINE_MS });
  sent.once('timeout', () => sent.destroy());
  sent.end();
  try {
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    const { statusCode: status = 0, statusMessage: phrase = '' } = answer;
    let text = '';
    try {
      for await (const chunk of answer) text += String(chunk);
    } catch {
      return { status, phrase, body: undefined };
    }
    return { status, phrase, body: text.startsWith('{') ? (JSON.parse(text) as Seen['body']) : undefined };
  } catch {
    return undefined;
  }
}

const refuse = (): never => {
  throw new AppError('not_found', 'there is none');
};
const broken = (): never => {
  throw new Error('it is broken, too');
};

test('the error does not reuse the phrase of a head that failed', async () => {
  const seen = await ask((_request, reply) => reply.raw.writeHead(200, 'O\u0001K').end());
  assert.equal(seen?.phrase, 'Internal Server Error');
  assert.equal(seen?.body?.error.code, 'internal');
});

test('a header that Node refuses to write costs the headers, but not the answer', async () => {
  for (const fail of [refuse, () => 'all is well']) {
    const seen = await ask((_request, reply) => {
      reply.header('x-broken', 'a\u0001b');
      return fail();
    });
    assert.equal(seen?.body?.error.code, 'internal');
    await app.close();
  }
});

test('an error that cannot be logged is still answered', async () => {
  const seen = await ask(refuse, (changed) => {
    changed.addHook('onRequest', async (request) => {
      Object.assign(request.log, { debug: broken, warn: broken, error: broken });
    });
  });
  assert.deepEqual([seen?.status, seen?.body?.error.code], [404, 'not_found']);
});

for (const [what, error] of [
  ['a value that throws when it is read', Proxy.revocable({}, {})],
  ['an error whose code throws', undefined],
  ['nothing', undefined],
  ['a text', 'text'],
] as const) {
  test(`throwing ${what} is a 500`, async () => {
    const seen = await ask(() => {
      if (typeof error === 'object') {
        error.revoke();
        throw error.proxy;
      }
      if (what === 'nothing') throw undefined;
      if (error === 'text') throw error;
      throw Object.defineProperty(new Error('x'), 'code', { get: broken });
    });
    assert.equal(seen?.status, 500);
    assert.equal(seen?.body?.error.code, 'internal');
  });
}

test('a response hook that throws does not stop the error answer', async () => {
  const seen = await ask(refuse, (changed) => {
    changed.addHook('onSend', broken);
    changed.addHook('onError', broken);
    changed.addHook('onResponse', broken);
  });
  assert.equal(seen?.status, 404);
  await app.close();
  const other = await ask(
    () => 'all is well',
    (changed) => changed.addHook('onSend', async () => broken()),
  );
  assert.equal(other?.status, 500);
});

test('after a failed head of an answer without a body, the client does not wait for a body', async () => {
  const seen = await ask((_request, reply) => reply.raw.writeHead(304, 'O\u0001K'));
  assert.equal(seen?.status, 500);
});

test('an error in the middle of an answer breaks it off', async () => {
  const seen = await ask((_request, reply) => {
    reply.raw.writeHead(200, { 'content-length': 10 }).write('half');
    return refuse();
  });
  assert.deepEqual([seen?.status, seen?.body], [200, undefined]);
});

test('when nothing can be written, the connection is closed', async () => {
  const seen = await ask((_request, reply) => {
    Object.assign(reply.raw, { writeHead: broken });
    return refuse();
  });
  assert.equal(seen, undefined);
});

test('a request that Fastify refuses before routing is answered in the same form', async () => {
  await ask(refuse);
  assert.equal((await get('/%zz'))?.status, 400);
});
