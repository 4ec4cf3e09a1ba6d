//! Unpublished versions of the engine API, as changes of the current one.

/// A version of the engine API, and what makes it so.
#[derive(Debug)]
pub(crate) struct Variant {
    /// Part of the names of all crates that are built against it.
    pub(crate) name: &'static str,
    /// Its semantic version. The build metadata of a broken 1.1 is for cargo, which cannot keep two
    /// packages of one name and one version apart; the layout check does not read it.
    pub(crate) version: &'static str,
    /// The fixtures' features for what it has.
    pub(crate) features: &'static [&'static str],
    /// The changes, one after the other; none for the repository's own API.
    pub(crate) changes: &'static [&'static [Patch<'static>]],
}

impl Variant {
    const fn new(
        name: &'static str,
        version: &'static str,
        features: &'static [&'static str],
        changes: &'static [&'static [Patch<'static>]],
    ) -> Variant {
        Variant { name, version, features, changes }
    }
}

const EMBED: &[&str] = &["embed"];
const NEWER: &[&str] = &["embed", "newer"];

pub(crate) const V1_0: Variant = Variant::new("v1-0", "1.0.0", &[], &[WITHOUT_EMBED]);
pub(crate) const V1_1: Variant = Variant::new("v1-1", "1.1.0", EMBED, &[]);
pub(crate) const V1_2: Variant = Variant::new("v1-2", "1.2.0", NEWER, &[GROWTH]);
/// A minor continues the one before: the layout check wants one history.
pub(crate) const V1_3: Variant = Variant::new("v1-3", "1.3.0", NEWER, &[GROWTH, MORE_GROWTH]);
/// The source of 1.2, so that the number alone makes the difference.
pub(crate) const V2_0: Variant = Variant::new("v2-0", "2.0.0", NEWER, &[GROWTH]);
pub(crate) const V1_2_FIELD: Variant =
    Variant::new("v1-2-field", "1.2.0+field", NEWER, &[GROWTH, FIELD_IN_A_FROZEN_STRUCT]);
pub(crate) const V1_2_REMOVED: Variant =
    Variant::new("v1-2-removed", "1.2.0+removed", NEWER, &[GROWTH, WITHOUT_STATUS]);

/// What 1.1 brought: a service.
const WITHOUT_EMBED: &[Patch<'static>] = &[
    replace(
        "src/abi/host.rs",
        "    /// Since 1.1.\n    fn embed(&self, call: u64, request_json: RString) -> AbiFuture<AbiEmbeddings> {\n        // Runs in a library whose host is older.\n        let _ = (call, request_json);\n        std::future::ready(to_abi(Err(embedder_missing()))).into_ffi()\n    }\n",
        "",
    ),
    replace(
        "src/abi/services.rs",
        "    fn embed(&self, id: u64, request: RString) -> AbiFuture<AbiEmbeddings> {\n        self.call_async(\n            move |host| Ok(host.embed(CallId(id), from_json(request.as_str())?)),\n            AbiCodec::encode,\n        )\n    }\n",
        "",
    ),
    replace(
        "src/host.rs",
        "        let answer = self.object.0.embed(call.0, to_json(&request));\n        AbiCodec::decode(from_abi(answer.await)?)\n",
        "        let _ = (call, request);\n        Err(crate::abi::host::embedder_missing())\n",
    ),
];

const CALLS_GROW_HERE: &str = "    // ABI growth: a call";
const SERVICES_GROW_HERE: &str = "    // ABI growth: a service";

/// A call and a service. Their default bodies answer 1001 and 77, the new code 2002 and 8, so that
/// a row tells which of the two was asked.
const GROWTH: &[Patch<'static>] = &[
    insert(
        "src/abi/engine.rs",
        CALLS_GROW_HERE,
        "    fn forecast(&self) -> u64 {\n        1001\n    }\n",
    ),
    insert("src/abi/export.rs", "    fn dispose(", "    fn forecast(&self) -> u64 { 2002 }\n"),
    insert(
        "src/abi/import.rs",
        "    /// Calls [`ContextEngine::dispose`]",
        "    /// Asks the engine.\n    pub fn forecast(&self) -> u64 { self.engine.forecast() }\n",
    ),
    insert(
        "src/abi/host.rs",
        SERVICES_GROW_HERE,
        "    fn weather(&self) -> u64 {\n        77\n    }\n",
    ),
    insert(
        "src/abi/services.rs",
        "    fn spawn(&self, session_id: RString",
        "    fn weather(&self) -> u64 { 8 }\n",
    ),
    insert(
        "src/host.rs",
        "    /// Waits without blocking a thread",
        "    /// Asks the host.\n    pub fn weather(&self) -> u64 { self.object.0.weather() }\n",
    ),
];

const MORE_GROWTH: &[Patch<'static>] = &[insert(
    "src/abi/engine.rs",
    CALLS_GROW_HERE,
    "    fn season(&self) -> u64 {\n        1002\n    }\n",
)];

/// `AbiOp` with a field in the middle, where a careless edit would put it.
const FIELD_IN_A_FROZEN_STRUCT: &[Patch<'static>] = &[
    insert(
        "src/abi/plan.rs",
        "    text: RString,\n    /// The operation's note",
        "    weight: u64,\n",
    ),
    insert(
        "src/abi/plan.rs",
        "            text: text.into(),\n            ext_json: op.note",
        "            weight: 1,\n",
    ),
];

/// A cold call less. It stands before the marker, so every 1.x has promised it.
const WITHOUT_STATUS: &[Patch<'static>] = &[
    replace("src/abi/engine.rs", "    fn status(&self) -> RResult<RString, AbiError>;\n", ""),
    replace(
        "src/abi/export.rs",
        "    fn status(&self) -> RResult<RString, AbiError> {\n        self.call_sync(|engine| Ok(engine.status()))\n    }\n",
        "",
    ),
    replace(
        "src/abi/c/engine.rs",
        "    fn status(&self) -> RResult<RString, AbiError> {\n        self.call_sync(CInstance::status)\n    }\n",
        "",
    ),
    replace(
        "src/abi/import.rs",
        "        let answer = catch_panic(|| self.engine.status())?;\n        from_json(from_abi(answer)?.as_str())\n",
        "        Ok(EngineStatus::default())\n",
    ),
];

/// A change of one file of a crate, hung up at a text that is there exactly once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch<'a> {
    /// The file, below the crate.
    pub(crate) file: &'a str,
    anchor: &'a str,
    text: &'a str,
    keeps_anchor: bool,
}

/// Puts a text in front of the anchor.
const fn insert<'a>(file: &'a str, anchor: &'a str, text: &'a str) -> Patch<'a> {
    Patch { file, anchor, text, keeps_anchor: true }
}

/// Puts a text in the place of the anchor.
pub(crate) const fn replace<'a>(file: &'a str, anchor: &'a str, text: &'a str) -> Patch<'a> {
    Patch { file, anchor, text, keeps_anchor: false }
}

impl Patch<'_> {
    /// Changes the source. An anchor that is gone or stands there twice fails the test: a variant
    /// that is not what its name says would prove nothing.
    pub(crate) fn apply(&self, source: &str) -> String {
        let count = source.matches(self.anchor).count();
        assert_eq!(count, 1, "{} has {count} times the anchor {:?}", self.file, self.anchor);
        let kept = if self.keeps_anchor { self.anchor } else { "" };
        source.replacen(self.anchor, &format!("{}{kept}", self.text), 1)
    }
}
