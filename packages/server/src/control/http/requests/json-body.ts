/** Parses JSON bodies, with errors that give the position of the mistake. */
import type { IncomingMessage } from 'node:http';
import { AppError } from '@coppice/contract';
import { JSON_BODY_BYTES, NOT_JSON } from '../answers/error-mapper.ts';
import type { App } from '../app.ts';
import { measureJson, type JsonMeasure } from './measure-json.ts';
import type { HttpParts } from '../parts.ts';

const NULL_BODY = new AppError('invalid_request', 'body: must be an object, not null; or send no body');

const texts = new WeakMap<IncomingMessage, string>();

/** Returns the text of a JSON body that has been read, for a request that is forwarded. */
export function bodyTextOf(request: IncomingMessage): string | undefined {
  return texts.get(request);
}

/** A JSON body must arrive before a deadline, so that no client can hold a request open by sending single bytes. */
export function addJsonBody(
  app: App,
  { limits, requestForwarder }: Pick<HttpParts, 'limits' | 'requestForwarder'>,
): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  const options = { parseAs: 'string', bodyLimit: JSON_BODY_BYTES } as const;
  app.addContentTypeParser<string>('application/json', options, (request, text, done) => {
    if (requestForwarder !== undefined) texts.set(request.raw, text);
    if (text === '') return done(null, undefined);
    const { maxJson } = request.routeOptions.config;
    const excess = maxJson && findExcess(measureJson(text), maxJson);
    if (excess !== undefined) return done(new AppError('payload_too_large', excess));
    // Fastify's parser also refuses "__proto__", which could trick later code.
    void parse(request, text, (error, value) => {
      if (error) done(explainBrokenJson(text));
      // An endpoint that takes no body, or an optional one, would treat null as no body.
      else done(value === null ? NULL_BODY : null, value);
    });
    return undefined;
  });
  // Fastify itself parses text, and the schema would then miss an object. Browsers also send this type without a body.
  app.removeContentTypeParser('text/plain');
  app.addContentTypeParser<string>('text/plain', options, (_request, text, done) =>
    done(text === '' ? null : new AppError('invalid_request', NOT_JSON), undefined),
  );
  app.addHook('preParsing', async (request, _reply, payload) => {
    // The data after the head of an upgrade is not a body, and never ends.
    if (request.routeOptions.config.hasRawBody === true || request.ws) return payload;
    const { raw } = request;
    // The stream of a request without a body is not read, and so does not end before the answer.
    const end = () => (raw.complete ? undefined : raw.destroy());
    const timer = setTimeout(end, limits.bodyDeadlineMs);
    const stop = () => clearTimeout(timer);
    payload.once('end', stop).once('close', stop);
    return payload;
  });
}

function findExcess({ values, depth }: JsonMeasure, max: JsonMeasure): string | undefined {
  if (values > max.values) return `body: has over ${max.values} values; send fewer fields and elements`;
  return depth > max.depth ? `body: is nested over ${max.depth} levels deep; send it with fewer` : undefined;
}

function explainBrokenJson(text: string): AppError {
  const position = findJsonError(text);
  if (position === undefined) return explainPrototype(JSON.parse(text));
  if (position >= text.length) {
    return new AppError('invalid_request', `body: is not JSON, it ends too early at position ${position}`);
  }
  const { line, column } = locate(text, position);
  return new AppError(
    'invalid_request',
    `body: is not JSON at position ${position} (line ${line}, column ${column})`,
  );
}

/** Explains JSON that only has a forbidden name. */
function explainPrototype(body: object): AppError {
  const found = Object.entries(body).find(
    ([, value]) => typeof value === 'object' && value !== null && Object.hasOwn(value, '__proto__'),
  );
  const message =
    found === undefined
      ? 'body: must not have the name "__proto__" anywhere, nor "constructor" with "prototype" in it'
      : `${found[0].slice(0, 64)}.__proto__: this name is not allowed; choose another`;
  return new AppError('invalid_request', message);
}

/**
 * Returns the index of the character at which `text` stops being a prefix of JSON; its length if only the end is
 * missing; undefined if it is JSON. V8 gives the position of some errors only, so this finds the longest good prefix.
 */
export function findJsonError(text: string): number | undefined {
  if (isJson(text)) return undefined;
  let good = 0;
  let bad = text.length + 1;
  while (bad - good > 1) {
    const middle = (good + bad) >>> 1;
    if (isPrefix(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  return good;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function isPrefix(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    const message = (error as SyntaxError).message;
    if (/^(Unexpected end of JSON input|Unterminated string)/.test(message)) return true;
    return Number(/ at position (\d+)/.exec(message)?.[1]) === text.length;
  }
}

function locate(text: string, position: number): { line: number; column: number } {
  const before = text.slice(0, position).split('\n');
  return { line: before.length, column: (before.at(-1) ?? '').length + 1 };
}
