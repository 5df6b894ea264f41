/** Tests with the vendors' own clients, configured as in guests only by the environment. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { buildGuestEnvironment } from '../../lib/credential-services/placeholders.ts';
import { CANARY, grantOf, ProxyFixture, serviceOf } from './testing/proxy-fixture.ts';

const WORDS = ['The', ' proxy', ' carries', ' words'];

async function readJson(request: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks = (await request.toArray()) as Buffer[];
  return JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
}

function answerJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json', 'x-request-id': 'req_1' });
  response.end(JSON.stringify(body));
}

function startEvents(response: ServerResponse): (event: string | undefined, data: object | string) => void {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  return (event, data) => {
    const text = typeof data === 'string' ? data : JSON.stringify(data);
    response.write(`${event === undefined ? '' : `event: ${event}\n`}data: ${text}\n\n`);
  };
}

/** Answers as api.openai.com does to clients with the secret. */
const speakOpenAi: RequestListener = (request, response) => {
  if (request.headers.authorization !== `Bearer ${CANARY}`) {
    answerJson(response, 401, { error: { message: 'wrong key', type: 'invalid_request_error', code: null } });
    return;
  }
  if (request.url === '/v1/models') {
    answerJson(response, 200, {
      object: 'list',
      data: [{ id: 'm', object: 'model', created: 1, owned_by: 'x' }],
    });
    return;
  }
  if (request.url === '/v1/files') {
    void acceptFile(request, response);
    return;
  }
  void complete(request, response);
};

async function acceptFile(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const bytes = Buffer.concat((await request.toArray()) as Buffer[]).length;
  answerJson(response, 200, { id: 'file-1', object: 'file', bytes, filename: 'a', purpose: 'batch' });
}

async function complete(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { stream, model } = await readJson(request);
  const chunk = { id: 'c', object: 'chat.completion.chunk', created: 1, model };
  if (model === 'missing') {
    answerJson(response, 404, { error: { message: 'no such model', type: 'x', code: 'model_not_found' } });
  } else if (stream === true) {
    const send = startEvents(response);
    for (const content of WORDS)
      send(undefined, { ...chunk, choices: [{ index: 0, delta: { content }, finish_reason: null }] });
    send(undefined, '[DONE]');
    response.end();
  } else {
    const message = { role: 'assistant', content: WORDS.join('') };
    const choices = [{ index: 0, message, finish_reason: 'stop' }];
    answerJson(response, 200, { ...chunk, object: 'chat.completion', choices });
  }
}

/** Answers as api.anthropic.com does. */
const speakAnthropic: RequestListener = (request, response) => {
  if (request.headers['x-api-key'] !== CANARY || request.headers['anthropic-version'] === undefined) {
    answerJson(response, 401, {
      type: 'error',
      error: { type: 'authentication_error', message: 'wrong key' },
    });
    return;
  }
  void speakMessage(request, response);
};

async function speakMessage(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { stream, model } = await readJson(request);
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model, stop_sequence: null };
  const usage = { input_tokens: 1, output_tokens: 4 };
  if (stream !== true) {
    const content = [{ type: 'text', text: WORDS.join('') }];
    answerJson(response, 200, { ...message, content, stop_reason: 'end_turn', usage });
    return;
  }
  const send = startEvents(response);
  send('message_start', {
    type: 'message_start',
    message: { ...message, content: [], stop_reason: null, usage },
  });
  send('content_block_start', {
    type: 'content_block_start',
    index: 0,
    content_block: { type: 'text', text: '' },
  });
  for (const text of WORDS)
    send('content_block_delta', {
      type: 'content_block_delta',
      index: 0,
      delta: { type: 'text_delta', text },
    });
  send('content_block_stop', { type: 'content_block_stop', index: 0 });
  send('message_delta', {
    type: 'message_delta',
    delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage,
  });
  send('message_stop', { type: 'message_stop' });
  response.end();
}

/** Returns the variables that a process of the guest has, except the address of the proxy. */
function environmentOf(fixture: ProxyFixture, name: string): { apiKey: string; baseURL: string } {
  const variables = buildGuestEnvironment({
    sandboxId: 'run-1',
    services: [serviceOf(name)],
    port: fixture.port,
  });
  const prefix = name.toUpperCase();
  const apiKey = variables[`${prefix}_API_KEY`] ?? '';
  const baseURL = (variables[`${prefix}_BASE_URL`] ?? '').replace('169.254.169.254', '127.0.0.1');
  assert.ok(apiKey !== '' && baseURL !== '');
  return { apiKey, baseURL };
}

async function startVendors(): Promise<ProxyFixture> {
  const fixture = await ProxyFixture.start();
  await fixture.network.serve('api.openai.com', speakOpenAi);
  await fixture.network.serve('api.anthropic.com', speakAnthropic);
  fixture.guest.grant(grantOf('openai'), grantOf('anthropic'));
  return fixture;
}

test("OpenAI's client completes, streams, lists, uploads and receives errors", async () => {
  await using fixture = await startVendors();
  const client = new OpenAI({ ...environmentOf(fixture, 'openai'), maxRetries: 0 });
  const messages = [{ role: 'user' as const, content: 'hello' }];
  const completion = await client.chat.completions.create({ model: 'm', messages });
  assert.equal(completion.choices[0]?.message.content, WORDS.join(''));
  const words: string[] = [];
  for await (const chunk of await client.chat.completions.create({ model: 'm', messages, stream: true }))
    words.push(chunk.choices[0]?.delta.content ?? '');
  assert.deepEqual(words, WORDS);
  assert.equal((await client.models.list()).data[0]?.id, 'm');
  const file = await client.files.create({
    purpose: 'batch',
    file: new File([new Uint8Array(1 << 20)], 'a.jsonl'),
  });
  assert.ok(file.bytes > 1 << 20);
  await assert.rejects(client.chat.completions.create({ model: 'missing', messages }), { status: 404 });
  assert.deepEqual(fixture.guest.proxied, [
    'openai POST /v1/chat/completions 200',
    'openai POST /v1/chat/completions 200',
    'openai GET /v1/models 200',
    'openai POST /v1/files 200',
    'openai POST /v1/chat/completions 404',
  ]);
});

test("Anthropic's client completes and streams", async () => {
  await using fixture = await startVendors();
  const client = new Anthropic({ ...environmentOf(fixture, 'anthropic'), maxRetries: 0 });
  const asked = { model: 'm', max_tokens: 16, messages: [{ role: 'user' as const, content: 'hello' }] };
  const message = await client.messages.create(asked);
  assert.deepEqual(
    message.content.map((block) => (block.type === 'text' ? block.text : '')),
    [WORDS.join('')],
  );
  const stream = client.messages.stream(asked);
  const words: string[] = [];
  stream.on('text', (text) => words.push(text));
  assert.equal((await stream.finalMessage()).stop_reason, 'end_turn');
  assert.deepEqual(words, WORDS);
  assert.deepEqual(fixture.guest.proxied, [
    'anthropic POST /v1/messages 200',
    'anthropic POST /v1/messages 200',
  ]);
});

test('the clients report refusals of the proxy and retry requests that may succeed later', async () => {
  await using fixture = await startVendors();
  fixture.guest.grant(
    grantOf('openai', { endpoints: [{ methods: ['GET'], paths: ['/v1/models'] }] }),
    grantOf('anthropic', { secret: undefined }),
  );
  const openai = new OpenAI({ ...environmentOf(fixture, 'openai'), maxRetries: 0 });
  await openai.models.list();
  await assert.rejects(openai.chat.completions.create({ model: 'm', messages: [] }), {
    status: 403,
    message: /No endpoint rule of the credential allows this/u,
  });
  const anthropic = new Anthropic({ ...environmentOf(fixture, 'anthropic'), maxRetries: 1 });
  const answered = anthropic.messages.create({ model: 'm', max_tokens: 1, messages: [] });
  fixture.guest.grant(grantOf('anthropic'));
  assert.equal((await answered).stop_reason, 'end_turn');
});

test('a stream that the client closes is closed at the vendor', async () => {
  await using fixture = await ProxyFixture.start();
  const left = Promise.withResolvers<void>();
  await fixture.network.serve('api.openai.com', (_request, response) => {
    const send = startEvents(response);
    send(undefined, { id: 'c', choices: [{ index: 0, delta: { content: 'The' } }] });
    void once(response, 'close').then(() => left.resolve());
  });
  fixture.guest.grant(grantOf('openai'));
  const client = new OpenAI({ ...environmentOf(fixture, 'openai'), maxRetries: 0 });
  for await (const _ of await client.chat.completions.create({ model: 'm', messages: [], stream: true }))
    break;
  await left.promise;
});
