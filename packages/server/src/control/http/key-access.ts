/**
 * What the key of a request must allow, in one place. Every route below `/v1` says in its `access` what it needs; one that
 * does not say it keeps the service from starting, and would be refused:
 *
 *     access          it                                            key: read   full   team_only
 *     read            answers what is kept, changes nothing              yes    yes    its team's
 *     full            changes something, or runs in a guest              403    yes    its team's
 *     organization    changes what all teams use                         403    yes    403
 *
 * Which sandboxes a key sees is decided where they are found: everything that finds one takes the request's `reach`.
 */
import { AppError, ErrorAnswer } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { App } from './app.ts';

export type KeyAccess = 'read' | 'full' | 'organization';

/** To be called before the first route is added. */
export function requireKeyAccess(v1: App): void {
  v1.addHook('onRoute', ({ url, method, config, schema }) => {
    const access = config?.access;
    if (access === undefined)
      throw new Error(`${String(method)} ${url} does not say what a key needs for it`);
    if (access !== 'read') describeRefusal(schema);
  });
}

/** Throws `forbidden` when the key does not allow what the route does. */
export function checkKeyAccess({ routeOptions, keyScope, reach }: FastifyRequest): void {
  const { access = 'organization' } = routeOptions.config;
  if (access === 'read') return;
  if (keyScope !== 'full')
    throw new AppError('forbidden', 'the API key has the scope "read", this takes one with the scope "full"');
  if (access === 'organization' && reach.onlyTeamId !== null)
    throw new AppError(
      'forbidden',
      'the API key is limited to its team (team_only), this is shared by all teams; use a key that is not',
    );
}

/** In the description of the API. */
function describeRefusal(schema: { response?: unknown } | undefined): void {
  const { response } = schema ?? {};
  if (typeof response === 'object' && response !== null && !('default' in response))
    Object.assign(response, { 403: ErrorAnswer });
}
