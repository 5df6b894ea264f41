/** Wire forms of users, sign-in and sessions: the calls below `/account`, which no API key can reach. */
import { z } from 'zod';
import { boundedText, Timestamp } from '../fields.ts';

const MIN_PASSWORD_LENGTH = 10;
const MAX_PASSWORD_LENGTH = 256;
const MAX_EMAIL_LENGTH = 254;
const MAX_NAME_BYTES = 100;
/** Checks only what every address has; mail servers decide which addresses they can deliver to. */
/** Without `\p{Cc}`: the pattern is part of the OpenAPI document, whose readers use patterns without the flag `u`. */
const EMAIL =
  // oxlint-disable-next-line no-control-regex -- it refuses control characters
  /^[^\s@\x00-\x1f\x7f-\x9f]{1,64}@[^\s@.\x00-\x1f\x7f-\x9f]+(?:\.[^\s@.\x00-\x1f\x7f-\x9f]+)*$/;
const HAS_CONTROL = /\p{Cc}/u;

/** E-mail address in lower case: upper and lower case mean the same address. */
export const Email = z
  .string({ error: 'must be a string' })
  .max(MAX_EMAIL_LENGTH, { error: `must be at most ${MAX_EMAIL_LENGTH} characters` })
  .regex(EMAIL, { error: 'must be an e-mail address' })
  .toLowerCase()
  .meta({ type: 'string', format: 'email' });

/** Name of a person or a thing, for display. */
export const DisplayName = boundedText(1, MAX_NAME_BYTES)
  .refine((text) => !HAS_CONTROL.test(text), { error: 'must not contain control characters' })
  .refine((text) => text.trim() === text, { error: 'must not begin or end with a space' });

function isPasswordLength(characters: number): boolean {
  return characters >= MIN_PASSWORD_LENGTH && characters <= MAX_PASSWORD_LENGTH;
}

const PASSWORD_ERROR = `must have ${MIN_PASSWORD_LENGTH} to ${MAX_PASSWORD_LENGTH} characters`;

/** A password to be set. */
export const NewPassword = z
  .string({ error: 'must be a string' })
  .refine((text) => text.isWellFormed(), { error: 'must be valid Unicode' })
  .refine((text) => isPasswordLength(Array.from(text).length), { error: PASSWORD_ERROR })
  .describe(`${MIN_PASSWORD_LENGTH} to ${MAX_PASSWORD_LENGTH} characters, and not the e-mail address.`);

/** A password to be compared. It needs no other validation: it is either right or wrong. */
const GivenPassword = z.string({ error: 'must be a string' }).max(4 * MAX_PASSWORD_LENGTH);

const InvitationToken = z.string({ error: 'must be a string' }).max(200);

/** Body of `POST /account/sign-up`. */
export const SignUpRequest = z
  .strictObject({
    email: Email,
    password: NewPassword,
    name: DisplayName,
    organization: DisplayName.optional().describe(
      'Name of an organization to create, instead of an invitation.',
    ),
    invitation: InvitationToken.optional().describe('Invitation (`inv_…`) of an organization to join.'),
  })
  .meta({ id: 'SignUpRequest' });
export type SignUpRequest = z.infer<typeof SignUpRequest>;

/** Body of `POST /account/sign-in`. */
export const SignInRequest = z
  .strictObject({ email: z.string({ error: 'must be a string' }).max(1000), password: GivenPassword })
  .meta({ id: 'SignInRequest' });
export type SignInRequest = z.infer<typeof SignInRequest>;

/** Body of `POST /account/password`. */
export const ChangePasswordRequest = z
  .strictObject({ current_password: GivenPassword, new_password: NewPassword })
  .meta({ id: 'ChangePasswordRequest' });
export type ChangePasswordRequest = z.infer<typeof ChangePasswordRequest>;

/** Body of `POST /account/invitations/accept`. */
export const AcceptInvitationRequest = z
  .strictObject({ invitation: InvitationToken })
  .meta({ id: 'AcceptInvitationRequest' });

export const Role = z.enum(['owner', 'member'], { error: 'must be owner or member' });
export type Role = z.infer<typeof Role>;

export const UserRecord = z
  .object({ id: z.string(), email: z.string(), name: z.string(), created_at: Timestamp })
  .meta({ id: 'User' });
export type UserRecord = z.infer<typeof UserRecord>;

const OwnTeam = z.object({ id: z.string(), name: z.string() });

export const AccountRecord = z
  .object({
    user: UserRecord,
    is_operator: z
      .boolean()
      .describe('Whether the person owns the first organization, and so operates the service.'),
    organizations: z.array(
      z.object({
        id: z.string(),
        name: z.string(),
        region: z.string(),
        role: Role,
        teams: z
          .array(OwnTeam)
          .describe("For an owner all teams of the organization, else the member's own teams."),
      }),
    ),
  })
  .meta({ id: 'Account' });
export type AccountRecord = z.infer<typeof AccountRecord>;

export const SessionRecord = z
  .object({
    id: z.string(),
    created_at: Timestamp,
    last_used_at: Timestamp.describe('Accurate to the minute.'),
    expires_at: Timestamp,
    client_address: z.string().describe('Address from which the session was started.'),
    user_agent: z.string().describe('User-Agent header of the client that started the session.'),
    is_current: z.boolean(),
  })
  .meta({ id: 'Session' });
export type SessionRecord = z.infer<typeof SessionRecord>;
