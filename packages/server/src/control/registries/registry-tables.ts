export interface RegistryCredentialTable {
  organization_id: string;
  /** As `parseRegistryName` spells it. */
  registry: string;
  username: string;
  /** By the secret box, bound to organization and registry. */
  sealed_password: Buffer;
  updated_at: number;
}
