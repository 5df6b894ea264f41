export interface RegistryCredentialTable {
  organization_id: string;
  /** In the spelling of `parseRegistryName`. */
  registry: string;
  username: string;
  /** Sealed by the secret box, bound to organization and registry. */
  sealed_password: Buffer;
  updated_at: number;
}
