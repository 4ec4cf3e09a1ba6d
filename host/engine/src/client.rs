//! Typed methods for types that take a call as a value.

/// Makes a method for each call of [`engine_calls!`](ctxhost_engine_api::engine_calls) that calls
/// `self.ask`: `engine_calls! { typed_methods Answer }` in an `impl`, where `Answer<T>` is the
/// return type of `ask`. `dispose` is left out, since its callers have to use the method of the
/// same name.
macro_rules! typed_methods {
    ([$answer:ident] $( $how:ident $method:ident: $variant:ident($request:ident) -> $reply:ty,
        transcript[$($session:ident)?] crosses $abi:tt $rules:tt; )*) => {
        $( $crate::client::typed_method! { $answer $how $method($request) -> $reply, $($session)? } )*
    };
}

macro_rules! typed_method {
    ($answer:ident $how:ident $method:ident($request:ident) -> $reply:ty, $session:ident) => {
        #[doc = concat!("Calls [`ContextEngine::", stringify!($method), "`].")]
        pub async fn $method(
            &self,
            view: impl std::borrow::Borrow<Transcript>,
            request: $request,
        ) -> $answer<$reply> {
            self.ask(view.borrow(), request).await
        }
    };
    ($answer:ident direct status($request:ident) -> $reply:ty,) => {
        /// Calls [`ContextEngine::status`].
        pub async fn status(&self) -> $answer<$reply> {
            self.ask(&Transcript::empty(), $request).await
        }
    };
    ($answer:ident last $($dispose:tt)*) => {};
    ($answer:ident $how:ident $method:ident($request:ident) -> $reply:ty,) => {
        #[doc = concat!("Calls [`ContextEngine::", stringify!($method), "`].")]
        pub async fn $method(&self, request: $request) -> $answer<$reply> {
            self.ask(&Transcript::empty(), request).await
        }
    };
}

pub(crate) use {typed_method, typed_methods};
