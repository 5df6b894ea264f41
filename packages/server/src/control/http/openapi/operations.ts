/** Adds to each operation of the OpenAPI document what its route does not declare itself. */
import { ERRORS, ErrorAnswer, type ErrorCode } from '@coppice/contract';
import type { FastifySchema, RouteOptions } from 'fastify';
import { jsonSchemaTransform } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { referTo } from '../answers/answers.ts';

type Transform = typeof jsonSchemaTransform;
type Input = Parameters<Transform>[0] & { route: RouteOptions };
interface ZodSchema extends FastifySchema {
  body?: z.ZodType;
  response?: Record<string, unknown>;
}

/** Set on operations whose body may be left out, until the document is finished. */
export const OPTIONAL_BODY = 'x-optional-body';

/** Errors of any call: a malformed request or head, a wrong credential, a limit, a fault, a start or stop. */
const COMMON_ERRORS = [400, 401, 429, 431, 500, 503];

/** Transforms a route for @fastify/swagger. */
export function describeRoute(input: Input): ReturnType<Transform> {
  const schema = input.schema as ZodSchema | undefined;
  if (schema === undefined || schema.hide === true) return jsonSchemaTransform(input);
  const { route, url } = input;
  const mayLeaveOut = schema.body instanceof z.ZodType && schema.body.safeParse(undefined).success;
  return jsonSchemaTransform({
    ...input,
    url: route.config?.describedAs ?? url,
    schema: {
      ...schema,
      ...describeCredentials(route),
      ...describeFrames(route),
      ...(mayLeaveOut ? { [OPTIONAL_BODY]: true } : {}),
      response: describeAnswers(schema, input),
    },
  });
}

function describeAnswers({ response = {} }: ZodSchema, { url, route }: Input): Record<string, unknown> {
  // The guest defines its own answers.
  if ('default' in response) return response;
  const isOpen = url === '/healthz' || url === '/openapi.json';
  const common = isOpen ? [400, 431, 500, 503] : COMMON_ERRORS;
  const socket = route.wsHandler === undefined ? {} : { 101: SWITCHED, 404: ErrorAnswer, 409: ErrorAnswer };
  return { ...Object.fromEntries(common.map((status) => [status, ErrorAnswer])), ...socket, ...response };
}

const SWITCHED = z.null().describe('The WebSocket is open.');

/** Browsers cannot send headers with a WebSocket: the query may carry the credential instead. */
function describeCredentials({ config }: RouteOptions): Pick<FastifySchema, 'security'> {
  const inQuery = config?.credentialInQuery;
  if (inQuery === undefined) return {};
  const names = inQuery === 'ticket' ? ['ticket'] : ['ticket', 'token'];
  return { security: [{ apiKey: [] }, ...names.map((name) => ({ [name]: [] }))] };
}

/** OpenAPI has no place for WebSocket messages: an extension names them, and schemas describe them. */
function describeFrames({ config }: RouteOptions): object {
  if (config?.frames === undefined) return {};
  const { client, service } = config.frames;
  return {
    'x-websocket': {
      client: { anyOf: client.map((schema) => referTo(schema, 'Input')) },
      service: { anyOf: service.map((schema) => referTo(schema)) },
    },
  };
}

/** `400` → "`invalid_request`: A field … `image_not_pinned`: …" */
export function describeStatus(status: string): string | undefined {
  const codes = (Object.keys(ERRORS) as ErrorCode[]).filter((code) => String(ERRORS[code].status) === status);
  if (codes.length === 0) return undefined;
  return codes.map((code) => `\`${code}\`: ${ERRORS[code].summary}`).join(' ');
}
