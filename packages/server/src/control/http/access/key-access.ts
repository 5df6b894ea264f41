/**
 * Checks in one place that a key allows a request. Every route below `/v1` declares the access that it needs in
 * `access`. A route without a declaration keeps the service from starting, and its requests are refused:
 *
 *     access             the route                                  key: read   full   team_only
 *     read               returns what is stored, changes nothing         yes    yes    of its team
 *     read_organization  returns what shows things of all teams          yes    yes    403
 *     full               changes something, or runs in a guest           403    yes    of its team
 *     organization       changes what all teams use, or shows
 *                        who changed it                                  403    yes    403
 *
 * Lookups decide which sandboxes a key sees: every function that finds one takes the request's `reach`.
 */
import { AppError, ErrorAnswer } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { App } from '../app.ts';

export type KeyAccess = 'read' | 'read_organization' | 'full' | 'organization';

/** Makes adding a route without `access` throw. Call before adding the first route. */
export function requireKeyAccess(v1: App): void {
  v1.addHook('onRoute', ({ url, method, config, schema }) => {
    const access = config?.access;
    if (access === undefined)
      throw new Error(`${String(method)} ${url} does not declare the access that it needs`);
    if (access !== 'read') describeRefusal(schema);
  });
}

/** Throws `forbidden` when the key does not allow what the route does. */
export function checkKeyAccess({ routeOptions, keyScope, reach }: FastifyRequest): void {
  const { access = 'organization' } = routeOptions.config;
  if (access === 'read') return;
  if (access !== 'read_organization' && keyScope !== 'full')
    throw new AppError(
      'forbidden',
      'the API key has the scope "read"; use a key with the scope "full" for this',
    );
  if (access !== 'full' && reach.onlyTeamId !== null)
    throw new AppError(
      'forbidden',
      'the API key is limited to its team (team_only), and all teams share this; use a key without team_only',
    );
}

/** Adds the 403 answer to the API description of a route. */
function describeRefusal(schema: { response?: unknown } | undefined): void {
  const { response } = schema ?? {};
  if (typeof response === 'object' && response !== null && !('default' in response))
    Object.assign(response, { 403: ErrorAnswer });
}
