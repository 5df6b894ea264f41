/** Wire forms of organizations, their members, invitations and teams. */
import { z } from 'zod';
import { boundedInt, Timestamp } from '../fields.ts';
import { DisplayName, Email, Role } from './people.ts';

const DAY_S = 86_400;
const MAX_INVITATION_S = 30 * DAY_S;
export const DEFAULT_INVITATION_S = 7 * DAY_S;

/** Body of `POST /account/organizations`. */
export const CreateOrganizationRequest = z
  .strictObject({ name: DisplayName })
  .meta({ id: 'CreateOrganizationRequest' });

/** Body of `PATCH /account/organizations/{organization}`. */
export const RenameOrganizationRequest = z
  .strictObject({ name: DisplayName })
  .meta({ id: 'RenameOrganizationRequest' });

export const OrganizationRecord = z
  .object({ id: z.string(), name: z.string(), region: z.string(), role: Role, created_at: Timestamp })
  .meta({ id: 'Organization' });
export type OrganizationRecord = z.infer<typeof OrganizationRecord>;

export const MemberRecord = z
  .object({ id: z.string(), email: z.string(), name: z.string(), role: Role, joined_at: Timestamp })
  .meta({ id: 'Member' });
export type MemberRecord = z.infer<typeof MemberRecord>;

/** Body of `PATCH …/members/{member}`. */
export const ChangeRoleRequest = z.strictObject({ role: Role }).meta({ id: 'ChangeRoleRequest' });

/** Body of `POST …/invitations`. */
export const CreateInvitationRequest = z
  .strictObject({
    role: Role.default('member'),
    email: Email.optional().describe(
      'Address of the invited person. Without it, any holder of the invitation can use it.',
    ),
    expires_in: boundedInt(60, MAX_INVITATION_S, 'seconds').default(DEFAULT_INVITATION_S),
  })
  .meta({ id: 'CreateInvitationRequest' });
export type CreateInvitationRequest = z.infer<typeof CreateInvitationRequest>;

export const InvitationRecord = z
  .object({
    id: z.string(),
    role: Role,
    email: z.string().nullable(),
    created_at: Timestamp,
    expires_at: Timestamp,
  })
  .meta({ id: 'Invitation' });
export type InvitationRecord = z.infer<typeof InvitationRecord>;

export const CreatedInvitation = InvitationRecord.extend({
  invitation: z
    .string()
    .describe('For `POST /account/sign-up` or `…/invitations/accept`; valid once, and shown only here.'),
}).meta({ id: 'CreatedInvitation' });
export type CreatedInvitation = z.infer<typeof CreatedInvitation>;

/** Body of `POST …/teams`. */
export const CreateTeamRequest = z.strictObject({ name: DisplayName }).meta({ id: 'CreateTeamRequest' });

/** Body of `PATCH …/teams/{team}`. */
export const RenameTeamRequest = z.strictObject({ name: DisplayName }).meta({ id: 'RenameTeamRequest' });

export const TeamRecord = z
  .object({ id: z.string(), name: z.string(), created_at: Timestamp })
  .meta({ id: 'Team' });
export type TeamRecord = z.infer<typeof TeamRecord>;

export const TeamMemberRecord = z
  .object({ id: z.string(), email: z.string(), name: z.string(), joined_at: Timestamp })
  .meta({ id: 'TeamMember' });
export type TeamMemberRecord = z.infer<typeof TeamMemberRecord>;
