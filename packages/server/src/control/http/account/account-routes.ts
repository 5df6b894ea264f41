/**
 * Routes below `/account`, for people who are signed in by cookie. An API key is not accepted here, and a cookie is not
 * accepted below `/v1`. Checks, in their order:
 *
 *   own origin, JSON ─► session ─► body, path ─► membership and role (the route's `audience`) ─► endpoint
 */
import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';
import { addAcceptInvitation } from './members/accept-invitation.ts';
import { addAddTeamMember } from './teams/add-team-member.ts';
import { addChangePassword } from './people/change-password.ts';
import { addChangeRole } from './members/change-role.ts';
import { addCreateApiKey } from './keys/create-api-key.ts';
import { addCreateInvitation } from './members/create-invitation.ts';
import { addCreateOrganization } from './organizations/create-organization.ts';
import { addCreateSessionKey } from './keys/create-session-key.ts';
import { addCreateTeam } from './teams/create-team.ts';
import { addEndSession } from './people/end-session.ts';
import { addGetAccount } from './people/get-account.ts';
import { addGetAuditSecret } from './keys/get-audit-secret.ts';
import { addGetOrganization } from './organizations/get-organization.ts';
import { addListApiKeys } from './keys/list-api-keys.ts';
import { addListAuditSecrets } from './keys/list-audit-secrets.ts';
import { addListInvitations } from './members/list-invitations.ts';
import { addListMembers } from './members/list-members.ts';
import { addListSessions } from './people/list-sessions.ts';
import { addListTeamMembers } from './teams/list-team-members.ts';
import { addListTeams } from './teams/list-teams.ts';
import { assertJson, assertOwnOrigin } from './session/own-origin.ts';
import { addChangeLimits } from './operator/change-limits.ts';
import { addGetHost } from './operator/get-host.ts';
import { addGrantCredit } from './operator/grant-credit.ts';
import { addListOperated } from './operator/list-operated.ts';
import { addRemoveMember } from './members/remove-member.ts';
import { addRemoveTeamMember } from './teams/remove-team-member.ts';
import { addOrganizationAudit } from './organizations/organization-audit.ts';
import { addRenameOrganization } from './organizations/rename-organization.ts';
import { addRenameTeam } from './teams/rename-team.ts';
import { addRevokeApiKey } from './keys/revoke-api-key.ts';
import { addRevokeInvitation } from './members/revoke-invitation.ts';
import { addRotateApiKey } from './keys/rotate-api-key.ts';
import { addRotateAuditSecret } from './keys/rotate-audit-secret.ts';
import { readSessionToken, setSessionCookie } from './session/session-cookie.ts';
import { addSignIn } from './people/sign-in.ts';
import { addSignOut } from './people/sign-out.ts';
import { addSignUp } from './people/sign-up.ts';
import { invariant } from '../../../lib/invariant.ts';

export async function addAccountRoutes(app: App, parts: HttpParts): Promise<void> {
  app.addHook('onRequest', async (request, reply) => {
    reply.header('cache-control', 'no-store');
    assertOwnOrigin(request);
    assertJson(request);
    parts.assertServing();
  });
  addSignUp(app, parts);
  addSignIn(app, parts);
  await app.register(async (signedIn: App) => addSignedIn(signedIn, parts));
}

async function addSignedIn(app: App, parts: HttpParts): Promise<void> {
  app.addHook('onRequest', (request, reply) => requireSession(request, reply, parts));
  addSignOut(app, parts);
  addGetAccount(app, parts);
  addChangePassword(app, parts);
  addListSessions(app, parts);
  addEndSession(app, parts);
  addAcceptInvitation(app, parts);
  addCreateOrganization(app, parts);
  await app.register(async (operator: App) => addOperator(operator, parts));
  await app.register(async (organization: App) => addOrganization(organization, parts));
}

/** Calls that concern the whole service: only owners of the first organization may make them. */
function addOperator(app: App, parts: HttpParts): void {
  // Before the body is validated: others learn nothing of these calls.
  app.addHook('preValidation', ({ userId }) => parts.accounts.access.checkOperator(userId));
  addGetHost(app, parts);
  addListOperated(app, parts);
  addChangeLimits(app, parts);
  addGrantCredit(app, parts);
}

function addOrganization(app: App, parts: HttpParts): void {
  app.addHook('onRoute', ({ url, config }) => {
    invariant(config?.audience, `${url} does not declare its audience`);
  });
  app.addHook('preHandler', (request) => checkAccess(request, parts));
  addGetOrganization(app, parts);
  addRenameOrganization(app, parts);
  addOrganizationAudit(app, parts);
  addListMembers(app, parts);
  addChangeRole(app, parts);
  addRemoveMember(app, parts);
  addCreateInvitation(app, parts);
  addListInvitations(app, parts);
  addRevokeInvitation(app, parts);
  addCreateTeam(app, parts);
  addListTeams(app, parts);
  addRenameTeam(app, parts);
  addListTeamMembers(app, parts);
  addAddTeamMember(app, parts);
  addRemoveTeamMember(app, parts);
  addCreateApiKey(app, parts);
  addListApiKeys(app, parts);
  addRevokeApiKey(app, parts);
  addRotateApiKey(app, parts);
  addCreateSessionKey(app, parts);
  addListAuditSecrets(app, parts);
  addGetAuditSecret(app, parts);
  addRotateAuditSecret(app, parts);
}

async function requireSession(
  request: FastifyRequest,
  reply: FastifyReply,
  { accounts }: Pick<HttpParts, 'accounts'>,
): Promise<void> {
  const token = readSessionToken(request);
  const session = token === undefined ? undefined : await accounts.sessions.use(token);
  if (token === undefined || session === undefined)
    throw new AppError(
      'unauthorized',
      'not signed in: call POST /account/sign-in first; API keys are not accepted here',
    );
  request.userId = session.userId;
  request.sessionId = session.id;
  if (session.isExtended) setSessionCookie(reply, { token, expiresAt: session.expiresAt });
}

async function checkAccess(
  request: FastifyRequest,
  { accounts }: Pick<HttpParts, 'accounts'>,
): Promise<void> {
  const { organization = '', team } = request.params as { organization?: string; team?: string };
  const { audience = 'owner' } = request.routeOptions.config;
  request.role = await accounts.access.check(
    request.userId,
    { organizationId: organization, teamId: team },
    audience,
  );
  request.organizationId = organization;
  request.teamId = team ?? '';
}
