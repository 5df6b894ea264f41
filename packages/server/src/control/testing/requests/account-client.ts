/** A person with a browser: keeps the session cookie and sends the origin of its page. */
import { randomBytes } from 'node:crypto';
import type { Answer, CallOptions, ControlHarness } from '../control-harness.ts';

export const PASSWORD = 'correct horse battery';

export interface NewPerson {
  email?: string;
  invitation?: string;
  organization?: string;
}

export class AccountClient {
  readonly #harness: ControlHarness;
  email = '';
  id = '';
  /** The first organization and its first team that the person sees. */
  organizationId = '';
  teamId = '';
  cookie = '';

  constructor(harness: ControlHarness) {
    this.#harness = harness;
  }

  static async signUp(harness: ControlHarness, person: NewPerson): Promise<AccountClient> {
    const client = new AccountClient(harness);
    client.email = person.email ?? `person-${randomBytes(4).toString('hex')}@example.test`;
    const body = { name: 'A Person', password: PASSWORD, ...person, email: client.email };
    const answer = await client.call('POST', '/account/sign-up', body);
    if (answer.status !== 201)
      throw new Error(`sign-up answered ${answer.status} ${JSON.stringify(answer.body)}`);
    client.id = answer.body.user.id;
    client.organizationId = answer.body.organizations[0]?.id ?? '';
    client.teamId = answer.body.organizations[0]?.teams[0]?.id ?? '';
    return client;
  }

  static async signIn(harness: ControlHarness, email: string): Promise<AccountClient> {
    const client = new AccountClient(harness);
    await client.call('POST', '/account/sign-in', { email, password: PASSWORD });
    return client;
  }

  /** Path of the person's organization. */
  get organization(): string {
    return `/account/organizations/${this.organizationId}`;
  }

  get team(): string {
    return `${this.organization}/teams/${this.teamId}`;
  }

  async call(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<Answer> {
    const isWrite = method === 'POST' || method === 'PUT' || method === 'PATCH';
    const answer = await this.#harness.call(method, path, {
      apiKey: null,
      ...(isWrite ? { body: body ?? {} } : {}),
      ...options,
      headers: {
        origin: this.#harness.address,
        ...(this.cookie === '' ? {} : { cookie: this.cookie }),
        ...options.headers,
      },
    });
    const [cookie] = answer.headers.getSetCookie();
    if (cookie !== undefined) this.cookie = cookie.split(';', 1)[0] ?? '';
    return answer;
  }

  /** Signs up another person in this person's organization. */
  async invite(role: 'owner' | 'member'): Promise<AccountClient> {
    const { body } = await this.call('POST', `${this.organization}/invitations`, { role });
    const client = await AccountClient.signUp(this.#harness, { invitation: body.invitation });
    client.organizationId = this.organizationId;
    client.teamId = this.teamId;
    return client;
  }

  /** Creates an organization, and returns a client of this person in it. */
  async addOrganization(name: string): Promise<AccountClient> {
    const { body } = await this.call('POST', '/account/organizations', { name });
    const client = new AccountClient(this.#harness);
    Object.assign(client, { email: this.email, id: this.id, cookie: this.cookie, organizationId: body.id });
    const teams = await client.call('GET', `${client.organization}/teams`);
    client.teamId = teams.body[0].id;
    return client;
  }
}
